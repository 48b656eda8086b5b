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
)

// editor is the form of a topic, an event subscription or a retry policy. Its fields are those of a table of settings.
type editor struct {
	form  *form
	table []spec.Setting
	noun  string // what is edited, in a sentence
	// name is "" for what is created.
	name string
	// address is the object's in the REST API.
	address func(name string) string
	// method changes an existing object.
	method string
	etag   string
	// stored are the settings of the object, or of the one that is copied, by name; without defaults and secrets.
	stored map[string]json.RawMessage
	// folded are the sections that are closed while they hold nothing but defaults.
	folded []string
	// own are the settings with a form of their own.
	own map[string]ownForm
	// dependent changes a field that depends on more than its setting. Optional.
	dependent func(field *formField)
	// finish changes the settings before they are sent. Optional.
	finish func(settings map[string]any)
	// press reports whether a button was pressed that does not save, and handles it. Optional.
	press func(ctx context.Context, c echo.Context) (pressed bool, err error)
	// saved is where the user continues after saving.
	saved func(name string, answer *apiAnswer) (href string, err error)

	page, title, action, back string
	trail                     []link
	changes                   []change
}

// ownForm is the part of a form for a setting that is more than one field.
type ownForm struct {
	fill  func(value json.RawMessage)
	show  func(section *formSection)
	value func() any
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
		if c.Request().Method != http.MethodPost {
			e.form = newForm()
			e.fill()
			return p.showForm(c, e)
		}
		if e.form, err = postedForm(c); err != nil {
			return err
		}
		href, err := p.submit(ctx, c, e, open)
		switch {
		case err != nil:
			return err
		case href != "":
			return c.Redirect(http.StatusSeeOther, href)
		}
		return p.showForm(c, e)
	}
}

// readStored reads the object from the REST API.
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

// fill enters what is stored, and remembers it for the case that another user changes it meanwhile.
func (e *editor) fill() {
	for i := range e.table {
		s := &e.table[i]
		value, stored := e.stored[s.Name]
		own, isOwn := e.own[s.Name]
		switch {
		case stored && isOwn:
			own.fill(value)
		case stored:
			e.form.set(s.Name, fieldText(s, value))
		case checkBox(s):
			e.form.set(s.Name, s.Default)
		}
	}
	e.remember()
}

func (e *editor) remember() {
	if e.name != "" {
		e.form.set("etag", e.etag)
		e.form.set("was", e.was())
	}
}

func (e *editor) was() string {
	text, _ := plainJSON(e.stored) // JSON values can always be written
	return string(text)
}

// settings are what the form says, as the REST API takes it: null stands for the default. Secrets that were not entered
// are left out.
func (e *editor) settings() (settings map[string]any, mistakes []apiProblem) {
	settings = map[string]any{}
	for i := range e.table {
		s := &e.table[i]
		own, isOwn := e.own[s.Name]
		stored, isStored := e.stored[s.Name]
		var value any
		switch {
		case s.Section == "", s.Secret && !isOwn && !e.form.has(s.Name):
			continue
		case isOwn:
			value = own.value()
		case isStored && (s.Fixed && e.name != "" || fieldText(s, stored) == e.form.values.Get(s.Name)):
			value = stored // exactly: a time keeps its fraction of a second
		default:
			value = e.form.value(s)
		}
		if _, invalid := value.(string); invalid && s.Kind == spec.JSON {
			mistakes = append(mistakes, apiProblem{Target: s.Name, Message: s.Name + " must be JSON"})
		}
		put(settings, s.Name, value)
	}
	if e.finish != nil {
		e.finish(settings)
	}
	return settings, mistakes
}

// sections are the parts of the form, in the order of the table.
func (e *editor) sections() (sections []formSection) {
	of := func(title string) *formSection {
		i := slices.IndexFunc(sections, func(s formSection) bool { return s.Title == title })
		if i < 0 {
			i, sections = len(sections), append(sections, formSection{
				ID: strings.ReplaceAll(strings.ToLower(title), " ", "-"), Title: title, Folded: slices.Contains(e.folded, title),
			})
		}
		return &sections[i]
	}
	if e.name == "" {
		first := of(e.table[0].Section)
		first.Fields = e.form.fields(formField{
			Name: "name", Label: "Name", Kind: kindText, Required: true,
			Hint: "3 to 64 letters, digits, dots, underscores and hyphens.",
		})
	}
	for i := range e.table {
		s := &e.table[i]
		fixed, stored := s.Fixed && e.name != "", e.stored[s.Name] != nil
		if s.Section == "" || fixed && !stored {
			continue
		}
		section := of(s.Section)
		if own, isOwn := e.own[s.Name]; isOwn {
			own.show(section)
			continue
		}
		field := settingField(s)
		field.Fixed = fixed
		field.Required = field.Required && e.name == ""
		if e.dependent != nil {
			e.dependent(&field)
		}
		section.Fields = append(section.Fields, e.form.fields(field)...)
	}
	for i := range sections {
		sections[i].unfold()
	}
	return sections
}

// save sends the settings: for a new object, or as a change of the version that the form was made from.
func (p *pages) save(ctx context.Context, c echo.Context, e *editor) (href string, err error) {
	name, method, condition := e.name, e.method, []string{"If-Match", e.form.get("etag")}
	settings, mistakes := e.settings()
	if e.name == "" {
		name, method, condition = e.form.get("name"), http.MethodPut, []string{"If-None-Match", "*"}
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

// submit does what the button says; href is where the user continues, "" is the form. If it was changed since the form
// was opened, the user sees the changes, and can save what was entered over them.
func (p *pages) submit(ctx context.Context, c echo.Context, e *editor, open opener) (href string, err error) {
	if e.press != nil {
		if pressed, err := e.press(ctx, c); pressed || err != nil {
			return "", err
		}
	}
	href, err = p.save(ctx, c, e)
	if err == nil {
		return href, nil
	}
	var rejected *apiError
	late := errors.As(err, &rejected) && rejected.status == http.StatusPreconditionFailed
	if late && e.name != "" {
		now, err := open(ctx, c)
		if err != nil {
			return "", err
		}
		e.etag, e.stored, e.changes = now.etag, now.stored, changesOf(e.form.get("was"), now.was())
		e.remember()
		c.Set(refusalKey, &refusedError{
			status: rejected.status, text: "Nothing was saved: another user has changed this " + e.noun +
				" since you opened the form. Save again to replace those changes.",
		})
		return "", nil
	}
	if late {
		rejected.Details = []apiProblem{{Target: "name", Message: "Another " + e.noun + " has this name."}}
	}
	return "", e.reject(c, err, "Nothing was saved")
}

// reject shows at each field what the API says of it; nothing says what was not done.
func (e *editor) reject(c echo.Context, err error, nothing string) error {
	var names []string
	for _, section := range e.sections() {
		names = append(names, section.names()...)
	}
	if !e.form.blame(err, names) {
		return err
	}
	c.Set(refusalKey, e.form.refusal(err, nothing))
	return nil
}

func (p *pages) showForm(c echo.Context, e *editor) error {
	view := formView{
		Action: e.action, Back: e.back, Save: "Create", Etag: e.form.get("etag"), Was: e.form.get("was"),
		Others: e.form.others, Changes: e.changes, Sections: e.sections(),
	}
	if e.name != "" {
		view.Save = "Save"
	}
	return p.show(c, e.page, e.title, false, view, e.trail...)
}

// change is a setting that another user has changed.
type change struct{ Setting, Was, Now string }

// changesOf compares settings by name. Lists are compared as a whole.
func changesOf(was, now string) (changes []change) {
	var before, after map[string]json.RawMessage
	_ = json.Unmarshal([]byte(was), &before) // a field of the form: what is no JSON was not ours
	_ = json.Unmarshal([]byte(now), &after)
	all := maps.Clone(after)
	maps.Copy(all, before)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if string(before[name]) != string(after[name]) {
			changes = append(changes, change{name, orNotSet(before[name]), orNotSet(after[name])})
		}
	}
	return changes
}

func orNotSet(value json.RawMessage) string {
	if len(value) == 0 || string(value) == `""` || string(value) == "[]" {
		return "not set"
	}
	return string(value)
}
