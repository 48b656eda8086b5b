package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"postrider/internal/catalog/spec"
	"postrider/internal/jsonscan"
	"postrider/internal/postgres"
	"postrider/web/display"
	"postrider/web/form"
	"postrider/web/site"
)

// editor is the form of a topic, an event subscription or a retry policy. Its fields come from a table of settings.
type editor struct {
	*form.Input
	table []spec.Setting
	noun  string
	// name is "" for a new object.
	name string
	// address is the object's path in the REST API; method changes it.
	address func(name string) string
	method  string
	etag    string
	// stored are the settings of the object, or of the one it copies, by name, without defaults and secrets.
	stored map[string]json.RawMessage
	// folded are the sections that are closed if all their settings are defaults.
	folded []string
	// lists are the settings that are lists of rows.
	lists []rowList
	focus string // the list to which a row was added
	// dependent changes fields that depend on more than the table. Optional.
	dependent func(section *formSection, field *form.Field)
	// kind is the setting that decides which others there are, as has reports; "" = none does.
	kind string
	has  func(s *spec.Setting, kind string) bool
	// ofKind are settings whose values are for one kind.
	ofKind []string
	// finish changes the settings before they are sent. Optional.
	finish func(settings map[string]any)
	// test handles the test button. Optional.
	test func(ctx context.Context, c echo.Context) error
	// saved is the page to continue at after saving.
	saved func(name string, response *apiResponse) (href string, err error)
	// removal returns why the object cannot be deleted, or how many deliveries its deletion cancels.
	removal func(ctx context.Context) (forbidden, canceled string, err error)
	// removed is the page to continue at after deletion.
	removed string
	// trail leads to the page of the object.
	trail   []display.Link
	action  string // where the form is sent
	changes []change
}

// opener prepares the form of the object in the address.
type opener func(ctx context.Context, c echo.Context) (*editor, error)

// edit shows a form or handles its buttons.
func (p *pages) edit(open opener) site.Page {
	return func(ctx context.Context, c echo.Context) error {
		e, err := open(ctx, c)
		if err != nil {
			return err
		}
		e.action = c.Request().URL.RequestURI()
		href := ""
		if c.Request().Method != http.MethodPost {
			e.Input = form.New()
			e.fill()
		} else {
			e.Input = postedForm(c)
			href, err = p.submit(ctx, c, e, open)
		}
		return site.Finish(c, href, err, func() error {
			view := formView{
				Action: e.action, Back: e.trail[len(e.trail)-1].Href, Save: "Create", Etag: e.Get("etag"),
				Was: e.Get("was"), Others: e.Mistakes[""], Changes: e.changes, Sections: e.sections(),
				Kind: e.Get(e.kind), HasKind: e.kind != "",
			}
			title := "New " + e.noun
			if e.name != "" {
				view.Save, title = "Save", "Edit "+e.name
			}
			return p.Show(c, "form", title, false, view, e.trail...)
		})
	}
}

// readStored reads the object of this name from the REST API.
func (p *pages) readStored(ctx context.Context, c echo.Context, e *editor, name string) error {
	response, err := p.request(ctx, c, http.MethodGet, e.address(name), nil)
	if rejected, ok := errors.AsType[*apiError](err); ok && rejected.status == http.StatusNotFound {
		return postgres.ErrNotFound
	}
	if err != nil {
		return err
	}
	e.etag, e.stored = response.header.Get("ETag"), form.SettingsIn(e.table, response.body.Bytes())
	return nil
}

// fill enters the stored settings.
func (e *editor) fill() {
	for i := range e.table {
		e.fillField(&e.table[i])
	}
	e.remember()
}

func (e *editor) fillField(s *spec.Setting) {
	value, stored := e.stored[s.Name]
	list := e.list(s.Name)
	switch {
	case stored && list != nil:
		var rows []json.RawMessage
		_ = json.Unmarshal(value, &rows) // it is always a list
		for i, row := range rows {
			list.write(e.Input, list.at(i)+".", row)
		}
	case stored:
		e.Set(s.Name, form.TextOf(s, value))
	case form.IsCheckBox(s):
		e.Set(s.Name, s.Default)
	}
}

// shows reports whether the form has the setting.
func (e *editor) shows(s *spec.Setting) bool { return e.kind == "" || e.has(s, e.Get(e.kind)) }

// kindChanged reports whether the user chose another kind than that of the page's fields. It fills in the fields that
// the page did not have.
func (e *editor) kindChanged() bool {
	if e.kind == "" || e.Get("kind") == e.Get(e.kind) {
		return false
	}
	for _, name := range e.ofKind {
		e.Set(name, "")
	}
	for i := range e.table {
		if s := &e.table[i]; s.Name != e.kind && e.shows(s) && !e.has(s, e.Get("kind")) {
			e.fillField(s)
		}
	}
	return true
}

// remember keeps the stored version in the form, to detect changes by other users.
func (e *editor) remember() {
	if e.name != "" {
		was := jsonscan.MustEncode(e.stored)
		e.Set("was", string(was))
		e.Set("etag", e.etag)
	}
}

// list is the setting of this name if it is a list of rows.
func (e *editor) list(name string) *rowList {
	if i := slices.IndexFunc(e.lists, func(l rowList) bool { return l.name == name }); i >= 0 {
		return &e.lists[i]
	}
	return nil
}

// settings are the input for the REST API; null is the default. Secrets that were not entered are left out.
func (e *editor) settings() (settings map[string]any, mistakes []apiProblem) {
	settings = map[string]any{}
	for i := range e.table {
		s := &e.table[i]
		list, stored := e.list(s.Name), e.stored[s.Name]
		switch {
		case s.Section == "", e.shows(s) && s.Secret && list == nil && !e.Has(s.Name):
		case !e.shows(s):
			form.Put(settings, s.Name, nil)
		case list != nil:
			rows := []any{}
			for i := range e.Input.Rows(list.name) {
				rows = append(rows, list.read(e.Input, list.at(i)+"."))
			}
			form.Put(settings, s.Name, rows)
		case stored != nil && (s.Fixed && e.name != "" || form.TextOf(s, stored) == e.Values.Get(s.Name)):
			form.Put(settings, s.Name, stored) // unchanged: a time keeps its fraction of a second
		default:
			value := e.Value(s)
			if _, invalid := value.(string); invalid && s.Kind == spec.JSON {
				mistakes = append(mistakes, apiProblem{Target: s.Name, Message: s.Name + " must be JSON"})
			}
			form.Put(settings, s.Name, value)
		}
	}
	if e.finish != nil {
		e.finish(settings)
	}
	return settings, mistakes
}

// sections are the parts of the form in the order of the table.
func (e *editor) sections() (sections []formSection) {
	for i := range e.table {
		s := &e.table[i]
		fixed := s.Fixed && e.name != ""
		if s.Section == "" || fixed && e.stored[s.Name] == nil || !e.shows(s) {
			continue
		}
		if n := len(sections); n == 0 || sections[n-1].Title != s.Section {
			sections = append(sections, formSection{
				ID: strings.ReplaceAll(strings.ToLower(s.Section), " ", "-"), Title: s.Section,
				Folded: slices.Contains(e.folded, s.Section),
			})
		}
		section, field := &sections[len(sections)-1], form.FieldOf(s)
		if s.Name == e.kind {
			field.Reload = e.action
		}
		field.Fixed, field.Required = fixed, field.Required && e.name == ""
		if e.dependent != nil {
			e.dependent(section, &field)
		}
		if list := e.list(s.Name); list != nil {
			section.List = list.show(e, &field)
			section.List.Action, section.List.Part = e.action, section.ID
			continue
		}
		section.Fields = append(section.Fields, e.Fields(field)...)
	}
	if e.name == "" {
		name := form.Field{
			Name: "name", Label: "Name", Kind: form.KindText, Required: true,
			Hint: "3 to 64 letters, digits, dots, underscores and hyphens.",
		}
		sections[0].Fields = append(e.Fields(name), sections[0].Fields...)
	}
	for i := range sections {
		sections[i].unfold()
	}
	return sections
}

// submit handles the buttons of a form. It returns the address to redirect to; "" shows the form.
func (p *pages) submit(ctx context.Context, c echo.Context, e *editor, open opener) (href string, err error) {
	changed := e.kindChanged()
	switch {
	case e.Has("change"):
		e.Live = e.Get("change") == "live"
		return "", nil
	case e.Has("add") || e.Has("remove"):
		for _, l := range e.lists {
			if e.Get("add") == l.name {
				e.focus = l.name
				e.Set(l.fields(e.Input, l.at(e.Rows(l.name))+".")[0].Name, "")
			}
			if row, _, ok := form.RowOf(l.name, e.Get("remove")+"."); ok {
				e.RemoveRow(l.name, row)
			}
		}
		return "", nil
	case changed:
		return "", &site.RejectionError{
			Status: http.StatusBadRequest, Text: "Nothing was saved: enter the settings of the type that you chose.",
		}
	}
	for _, l := range e.lists {
		// Rows without input are removed, so that the API's row numbers are those of the page.
		for i := e.Input.Rows(l.name) - 1; i >= 0; i-- {
			empty := true
			for _, field := range l.fields(e.Input, l.at(i)+".") {
				empty = empty && (field.Kind == form.KindSelect || !e.Input.Has(field.Name))
			}
			if empty {
				e.Input.RemoveRow(l.name, i)
			}
		}
	}
	if e.Has("test") && e.test != nil {
		return "", e.test(ctx, c)
	}
	href, err = p.save(ctx, c, e)
	if rejected, ok := errors.AsType[*apiError](err); ok && rejected.status == http.StatusPreconditionFailed {
		if e.name == "" {
			*rejected = apiError{
				status: rejected.status, Details: []apiProblem{{Target: "name", Message: "Another " + e.noun + " has this name."}},
			}
		} else if err := e.compare(open(ctx, c)); err != nil {
			return "", err
		}
	}
	return href, e.rejected(err, "Nothing was saved")
}

// save sends the settings of a new object, or of the version that the form shows.
func (p *pages) save(ctx context.Context, c echo.Context, e *editor) (href string, err error) {
	name, method, condition := e.name, e.method, []string{"If-Match", e.Get("etag")}
	settings, mistakes := e.settings()
	if e.name == "" {
		name, method, condition = e.Get("name"), http.MethodPut, []string{"If-None-Match", "*"}
		if name == "" {
			mistakes = append(mistakes, apiProblem{Target: "name", Message: "A name is required."})
		}
	}
	if len(mistakes) > 0 {
		return "", &apiError{status: http.StatusBadRequest, Details: mistakes}
	}
	body, err := jsonscan.Encode(settings)
	if err != nil {
		return "", fmt.Errorf("write the settings: %w", err)
	}
	response, err := p.request(ctx, c, method, e.address(name), body, condition...)
	if err != nil {
		return "", err
	}
	return e.saved(name, response)
}

// rejected adds the errors of the API to their fields.
func (e *editor) rejected(err error, nothing string) error {
	var names []string
	for _, section := range e.sections() {
		names = append(names, section.names()...)
	}
	return reject(e.Input, err, nothing, names...)
}

// change is a setting that another user has changed.
type change struct{ Setting, Was, Now string }

// compare shows what another user has changed since the form was opened. Saving again overwrites it.
func (e *editor) compare(now *editor, err error) error {
	if err != nil {
		return err
	}
	var was map[string]json.RawMessage
	_ = json.Unmarshal([]byte(e.Get("was")), &was) // invalid only in a forged form
	e.etag, e.stored = now.etag, now.stored
	e.remember()
	names := maps.Clone(now.stored)
	maps.Copy(names, was)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if before, after := orNotSet(was[name]), orNotSet(now.stored[name]); before != after {
			e.changes = append(e.changes, change{name, before, after})
		}
	}
	return nil
}

func orNotSet(value json.RawMessage) string {
	if len(value) == 0 || string(value) == `""` || string(value) == "[]" {
		return "not set"
	}
	return string(value)
}

type deletionView struct {
	Action, Back, Etag string
	What, Name         string
	Forbidden          string // why it cannot be deleted; "" if it can
	Canceled           string // the number of deliveries that the deletion cancels
}

// remove confirms a deletion, or deletes the version that was shown.
func (p *pages) remove(open opener) site.Page {
	return func(ctx context.Context, c echo.Context) error {
		e, err := open(ctx, c)
		if err != nil {
			return err
		}
		view := deletionView{
			Action: c.Request().URL.RequestURI(), Back: e.trail[len(e.trail)-1].Href, Etag: e.etag, What: e.noun, Name: e.name,
		}
		if view.Forbidden, view.Canceled, err = e.removal(ctx); err != nil {
			return err
		}
		href := ""
		if c.Request().Method == http.MethodPost {
			f := postedForm(c)
			_, err = p.request(ctx, c, http.MethodDelete, e.address(e.name), nil, "If-Match", f.Get("etag"))
			href, err = e.removed, reject(f, err, "Nothing was deleted")
		}
		return site.Finish(c, href, err, func() error {
			return p.Show(c, "delete", "Delete "+e.name, false, view, e.trail...)
		})
	}
}
