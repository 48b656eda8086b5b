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

	"postrider/catalog/spec"
	"postrider/postgres"
	"postrider/web/site"
)

// editor is the form of a topic, an event subscription or a retry policy. Its fields are those of a table of settings.
type editor struct {
	*form
	table []spec.Setting
	noun  string
	// name is "" for what is created.
	name string
	// address is the object's in the REST API, and method the one that changes it.
	address func(name string) string
	method  string
	etag    string
	// stored are the settings of the object, or of the one that is copied, by name; without defaults and secrets.
	stored map[string]json.RawMessage
	// folded are the sections that are closed while they hold nothing but defaults.
	folded []string
	// lists are the settings that are lists of rows.
	lists []rowList
	focus string // the list to which a row was added
	// dependent changes what depends on more than the table. Optional.
	dependent func(section *formSection, field *formField)
	// finish changes the settings before they are sent. Optional.
	finish func(settings map[string]any)
	// test handles the button that tests. Optional.
	test func(ctx context.Context, c echo.Context) error
	// saved is the page of what was saved.
	saved func(name string, answer *apiAnswer) (href string, err error)
	// removal returns why the object cannot be deleted, and how many deliveries that would cancel.
	removal func(ctx context.Context) (forbidden, canceled string, err error)
	// removed is the page to continue at after that.
	removed string
	// trail leads to the page of the object.
	trail   []site.Link
	action  string // where the form is sent
	changes []change
}

// opener prepares the form of what the address names.
type opener func(ctx context.Context, c echo.Context) (*editor, error)

// edit shows a form, or does what its button says.
func (p *pages) edit(open opener) echo.HandlerFunc {
	return func(c echo.Context) error {
		ctx, cancel := p.formContext(c)
		defer cancel()
		e, err := open(ctx, c)
		if err != nil {
			return err
		}
		e.action = c.Request().URL.RequestURI()
		href := ""
		if c.Request().Method != http.MethodPost {
			e.form = newForm()
			e.fill()
		} else {
			if e.form, err = postedForm(c); err != nil {
				return err
			}
			href, err = p.submit(ctx, c, e, open)
		}
		return again(c, href, err, func() error { return p.showForm(c, e) })
	}
}

func (p *pages) showForm(c echo.Context, e *editor) error {
	view := formView{
		Action: e.action, Back: e.trail[len(e.trail)-1].Href, Save: "Create", Etag: e.get("etag"),
		Was: e.get("was"), Others: e.mistakes[""], Changes: e.changes, Sections: e.sections(),
	}
	title := "New " + e.noun
	if e.name != "" {
		view.Save, title = "Save", "Edit "+e.name
	}
	return p.Show(c, "form", title, false, view, e.trail...)
}

// readStored reads the object of this name from the REST API.
func (p *pages) readStored(ctx context.Context, c echo.Context, e *editor, name string) error {
	answer, err := p.ask(ctx, c, http.MethodGet, e.address(name), nil)
	var rejected *apiError
	if errors.As(err, &rejected) && rejected.status == http.StatusNotFound {
		return postgres.ErrNotFound
	}
	if err != nil {
		return err
	}
	e.etag, e.stored = answer.header.Get("ETag"), settingsIn(e.table, answer.body.Bytes())
	return nil
}

// fill enters what is stored.
func (e *editor) fill() {
	for i := range e.table {
		s := &e.table[i]
		value, stored := e.stored[s.Name]
		list := e.list(s.Name)
		switch {
		case stored && list != nil:
			list.fill(e.form, value)
		case stored:
			e.set(s.Name, fieldText(s, value))
		case checkBox(s):
			e.set(s.Name, s.Default)
		}
	}
	e.remember()
}

// remember keeps what the form was made from, for the case that another user changes it meanwhile.
func (e *editor) remember() {
	if e.name != "" {
		was, _ := plainJSON(e.stored) // JSON values can always be written
		e.set("was", string(was))
		e.set("etag", e.etag)
	}
}

// list is the setting of this name if it is a list of rows.
func (e *editor) list(name string) *rowList {
	if i := slices.IndexFunc(e.lists, func(l rowList) bool { return l.name == name }); i >= 0 {
		return &e.lists[i]
	}
	return nil
}

// settings are what the form says, as the REST API takes it: null stands for the default. Secrets that were not entered
// are left out.
func (e *editor) settings() (settings map[string]any, mistakes []apiProblem) {
	settings = map[string]any{}
	for i := range e.table {
		s := &e.table[i]
		list, stored := e.list(s.Name), e.stored[s.Name]
		switch {
		case s.Section == "", s.Secret && list == nil && !e.has(s.Name):
		case list != nil:
			put(settings, s.Name, list.values(e.form))
		case stored != nil && (s.Fixed && e.name != "" || fieldText(s, stored) == e.values.Get(s.Name)):
			put(settings, s.Name, stored) // exactly: a time keeps its fraction of a second
		default:
			value := e.value(s)
			if _, invalid := value.(string); invalid && s.Kind == spec.JSON {
				mistakes = append(mistakes, apiProblem{Target: s.Name, Message: s.Name + " must be JSON"})
			}
			put(settings, s.Name, value)
		}
	}
	if e.finish != nil {
		e.finish(settings)
	}
	return settings, mistakes
}

// sections are the parts of the form, in the order of the table.
func (e *editor) sections() (sections []formSection) {
	for i := range e.table {
		s := &e.table[i]
		fixed := s.Fixed && e.name != ""
		if s.Section == "" || fixed && e.stored[s.Name] == nil {
			continue
		}
		if n := len(sections); n == 0 || sections[n-1].Title != s.Section {
			sections = append(sections, formSection{
				ID: strings.ReplaceAll(strings.ToLower(s.Section), " ", "-"), Title: s.Section,
				Folded: slices.Contains(e.folded, s.Section),
			})
		}
		section, field := &sections[len(sections)-1], settingField(s)
		field.Fixed, field.Required = fixed, field.Required && e.name == ""
		if e.dependent != nil {
			e.dependent(section, &field)
		}
		if list := e.list(s.Name); list != nil {
			section.List = list.show(e, &field)
			section.List.Action, section.List.Part = e.action, section.ID
			continue
		}
		section.Fields = append(section.Fields, e.fields(field)...)
	}
	if e.name == "" {
		name := formField{
			Name: "name", Label: "Name", Kind: kindText, Required: true,
			Hint: "3 to 64 letters, digits, dots, underscores and hyphens.",
		}
		sections[0].Fields = append(e.fields(name), sections[0].Fields...)
	}
	for i := range sections {
		sections[i].unfold()
	}
	return sections
}

// submit does what the button says; href is where the user continues, "" is the form.
func (p *pages) submit(ctx context.Context, c echo.Context, e *editor, open opener) (href string, err error) {
	if e.has("add") || e.has("remove") {
		e.changeRows()
		return "", nil
	}
	for _, l := range e.lists {
		l.dropEmptyRows(e.form)
	}
	if e.has("test") && e.test != nil {
		return "", e.test(ctx, c)
	}
	href, err = p.save(ctx, c, e)
	var rejected *apiError
	if errors.As(err, &rejected) && rejected.status == http.StatusPreconditionFailed {
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

// save sends the settings: of a new object, or for the version that the form was made from.
func (p *pages) save(ctx context.Context, c echo.Context, e *editor) (href string, err error) {
	name, method, condition := e.name, e.method, []string{"If-Match", e.get("etag")}
	settings, mistakes := e.settings()
	if e.name == "" {
		name, method, condition = e.get("name"), http.MethodPut, []string{"If-None-Match", "*"}
		if name == "" {
			mistakes = append(mistakes, apiProblem{Target: "name", Message: "A name is required."})
		}
	}
	if len(mistakes) > 0 {
		return "", &apiError{status: http.StatusBadRequest, Details: mistakes}
	}
	body, err := plainJSON(settings)
	if err != nil {
		return "", fmt.Errorf("write the settings: %w", err)
	}
	answer, err := p.ask(ctx, c, method, e.address(name), body, condition...)
	if err != nil {
		return "", err
	}
	return e.saved(name, answer)
}

// rejected notes at each field what the API says of it.
func (e *editor) rejected(err error, nothing string) error {
	var names []string
	for _, section := range e.sections() {
		names = append(names, section.names()...)
	}
	return e.reject(err, nothing, names...)
}

// change is a setting that another user has changed.
type change struct{ Setting, Was, Now string }

// compare shows what another user has changed since the form was opened. What was entered can be saved over it.
func (e *editor) compare(now *editor, err error) error {
	if err != nil {
		return err
	}
	var was map[string]json.RawMessage
	_ = json.Unmarshal([]byte(e.get("was")), &was) // a field of the form: if it is no JSON, it is not ours
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
