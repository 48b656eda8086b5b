package web

import "slices"

// The kinds of field; each has its part in form-parts.html.
const (
	kindText   = "text"
	kindURL    = "url"
	kindNumber = "number"
	kindTime   = "datetime-local"
	kindLines  = "lines"
	kindJSON   = "json"
	kindSelect = "select"
	kindCheck  = "check"
	kindSecret = "password"
)

// formField is a field of a form, and what is typed in it.
type formField struct {
	Name, Label, Hint, Kind string
	Value, Placeholder      string
	Default                 string // what it has where nothing is stated
	Min, Max                string
	Options                 []formOption
	Rows                    int // of a text of many lines
	Wide                    bool
	Required, Focus         bool
	Fixed                   bool // shown, but not to be changed any more
	Mistakes                []string
}

// ID is the field's own in its page.
func (f formField) ID() string { return "f-" + f.Name }

// Checked reports whether a check box is.
func (f formField) Checked() bool { return f.Value != "" }

// formOption is one of a select.
type formOption struct {
	Value, Text string
	Here        bool
}

// formRow is a row of a list, such as an advanced filter.
type formRow struct {
	Title  string
	Fields []formField
	Remove string // what its button sends
}

// formList is a list of rows that can be added to.
type formList struct {
	Name, Title, Hint, Add string
	Action, Part           string // where its buttons send the form, and the part of the page that they change
	Rows                   []formRow
	Mistakes               []string
}

// formSection is a part of a form. One that is folded is closed unless there is something in it.
type formSection struct {
	ID, Title, Lead string
	Folded, Open    bool
	Fields          []formField
	List            *formList
	Tester          *filterTester
}

// formView is what the form templates show.
type formView struct {
	Action, Back string // where it is sent to, and where one goes who gives up
	Save         string // on its button
	Etag, Was    string
	Others       []string
	Changes      []change
	Sections     []formSection
}

// fields fills in what was typed, and what is wrong with it.
func (f *form) fields(list ...formField) []formField {
	for i := range list {
		field := &list[i]
		field.Value, field.Mistakes = f.values.Get(field.Name), f.mistakes[field.Name]
		for k := range field.Options {
			field.Options[k].Here = field.Options[k].Value == field.Value
		}
		if field.Rows == 0 {
			field.Rows = 2
		}
	}
	return list
}

// openWhere opens the folded sections in which something is stated or wrong.
func openWhere(sections []formSection) []formSection {
	stated := func(f formField) bool { return f.Value != "" && f.Value != f.Default || len(f.Mistakes) > 0 }
	for i := range sections {
		s := &sections[i]
		s.Open = s.Open || !s.Folded || slices.ContainsFunc(s.Fields, stated) ||
			s.List != nil && len(s.List.Rows)+len(s.List.Mistakes) > 0
	}
	return sections
}

// namesOf are the names of all fields, for what the API says of them.
func namesOf(sections []formSection) (names []string) {
	for _, s := range sections {
		for _, field := range s.Fields {
			names = append(names, field.Name)
		}
		if s.List == nil {
			continue
		}
		names = append(names, s.List.Name)
		for _, row := range s.List.Rows {
			for _, field := range row.Fields {
				names = append(names, field.Name)
			}
		}
	}
	return names
}

// options are a select's; each is a value and what is shown for it, and the first is taken where nothing was.
func options(pairs ...string) []formOption {
	list := make([]formOption, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		list = append(list, formOption{Value: pairs[i], Text: pairs[i+1]})
	}
	return list
}
