package web

import (
	"slices"
	"strings"

	"postrider/web/form"
)

// formRow is a row of a list, such as an advanced filter.
type formRow struct {
	Title  string
	Fields []form.Field
	Remove string // the value of its button
}

// formList is a list of rows that the user adds and removes.
type formList struct {
	Name, Title, Hint, Add string
	Action, Part           string // the address and the part of the page for its buttons
	Rows                   []formRow
	Mistakes               []string
}

// formSection is a part of a form. A folded section is closed if its settings are defaults.
type formSection struct {
	ID, Title, Lead string
	Folded, Open    bool
	Fields          []form.Field
	List            *formList
	Tester          *filterTester
}

// unfold opens a folded section with stated fields. The lead of a folded section lists its fields.
func (s *formSection) unfold() {
	s.Open = !s.Folded || slices.ContainsFunc(s.Fields, form.Field.Stated) ||
		s.List != nil && len(s.List.Rows)+len(s.List.Mistakes) > 0
	if !s.Folded {
		return
	}
	var labels []string
	for _, field := range s.Fields {
		labels = append(labels, field.Label)
	}
	if s.List != nil {
		labels = append(labels, s.List.Title)
	}
	s.Lead = strings.Join(labels, ", ")
}

// names are the names of the fields, for errors of the API.
func (s *formSection) names() (names []string) {
	add := func(fields []form.Field) {
		for _, field := range fields {
			names = append(names, field.Name)
		}
	}
	add(s.Fields)
	if s.List != nil {
		names = append(names, s.List.Name)
		for _, row := range s.List.Rows {
			add(row.Fields)
		}
	}
	if s.Tester != nil {
		names = append(names, s.Tester.Event.Name)
	}
	return names
}

// formView is what the form templates show.
type formView struct {
	Action, Back string // the addresses for Save and Cancel
	Save         string // the label of its button
	Etag, Was    string
	Kind         string // what the fields are for, see editor.kind
	HasKind      bool
	Others       []string
	Changes      []change
	Sections     []formSection
}
