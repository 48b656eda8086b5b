package openapi

import (
	"cmp"
	"slices"
	"strings"
)

// The page's parts, as page.html shows them.
type (
	referencePage struct {
		Title       string
		Intro       [][]phrase
		Credentials []memberView
		Groups      []groupView
		Errors      []answerView
		Schemas     []schemaView
	}
	groupView struct {
		ID, Name   string
		About      [][]phrase
		Operations []operationView
	}
	operationView struct {
		ID, Method, Path, Summary string
		About                     [][]phrase
		Access, AccessWords       string
		Parameters                []memberView
		Body                      *bodyView
		Answers, Errors           []answerView
		Curl                      string
	}
	bodyView struct {
		Required bool
		Kinds    []string // media types
		Type     typeView
		Members  []memberView
		Examples []exampleView
	}
	exampleView struct{ Name, Kind, Text string }
	answerView  struct {
		ID, Status, Kind string
		About            [][]phrase
		Headers          []string
		Type             typeView
		Example          string
	}
	schemaView struct {
		ID, Name string
		About    [][]phrase
		Members  []memberView
		Values   []string
	}
	// memberView is a parameter, a property or a credential.
	memberView struct {
		Name, Place string
		Required    bool
		Type        typeView
		Rules       []string
		About       [][]phrase
	}
	// typeView is a type in words; Schema is the name of one that the page describes.
	typeView struct{ Before, Schema, After string }
)

// accessWords say what x-access asks for; docs/operate/access.md says more.
var accessWords = map[string]string{
	"none":    "No credential is asked for.",
	"publish": "Needs an access key of the topic, or an API key with scope publish or admin.",
	"read":    "Needs an API key with scope read, operate or admin.",
	"operate": "Needs an API key with scope operate or admin.",
	"admin":   "Needs an API key with scope admin, or the admin token.",
}

// view is the page of the file.
func (f *apiFile) view() referencePage {
	p := referencePage{Title: f.Info.Title, Intro: paragraphs(f.Info.Description), Credentials: f.credentials()}
	for _, tag := range f.Tags {
		p.Groups = append(p.Groups,
			groupView{
				ID: "tag-" + strings.ReplaceAll(tag.Name, " ", "-"), Name: tag.Name, About: paragraphs(tag.Description),
				Operations: f.tagged(tag.Name),
			})
	}
	for _, e := range f.Components.Responses {
		answer := f.answer("", e.Value)
		answer.ID, answer.Status = e.Name, f.statusOf(e.Name)
		p.Errors = append(p.Errors, answer)
	}
	slices.SortStableFunc(p.Errors, func(a, b answerView) int { return cmp.Compare(a.Status, b.Status) })
	for _, e := range f.Components.Schemas {
		p.Schemas = append(p.Schemas,
			schemaView{ID: e.Name, Name: e.Name, About: paragraphs(e.Value.Description), Members: f.members(&e.Value,
				""), Values: e.Value.Enum})
	}
	slices.SortFunc(p.Schemas, func(a, b schemaView) int { return cmp.Compare(a.Name, b.Name) })
	return p
}

func (f *apiFile) credentials() (list []memberView) {
	for _, e := range f.Components.SecuritySchemes {
		c := e.Value
		shown := memberView{Name: "Authorization: Bearer", About: paragraphs(c.Description)}
		if c.Type == "apiKey" {
			shown.Name, shown.Place = c.Name, c.In
		}
		list = append(list, shown)
	}
	return list
}

// tagged are the operations of a group.
func (f *apiFile) tagged(tag string) (list []operationView) {
	for _, path := range f.Paths {
		for _, op := range path.Value.operations() {
			if slices.Contains(op.Value.Tags, tag) {
				list = append(list, f.operation(path.Name, op.Name, &path.Value, op.Value))
			}
		}
	}
	return list
}

func (f *apiFile) operation(path, method string, at *apiPath, op *apiOperation) operationView {
	var parameters []apiParameter
	for _, p := range slices.Concat(at.Parameters, op.Parameters) {
		parameters = append(parameters, f.parameter(p))
	}
	v := operationView{
		ID: op.ID, Method: method, Path: path, Summary: op.Summary, About: paragraphs(op.Description), Access: op.Access,
		AccessWords: accessWords[op.Access],
		Body:        f.body(op.Body), Curl: curl(method, path, op, parameters),
	}
	for _, p := range parameters {
		m := f.member(p.Name, &p.Schema, p.Required)
		m.Place, m.About = p.In, paragraphs(p.Description)
		v.Parameters = append(v.Parameters, m)
	}
	for _, e := range op.Responses {
		if answer := f.answer(e.Name, e.Value); answer.ID == "" {
			v.Answers = append(v.Answers, answer)
		} else {
			v.Errors = append(v.Errors, answer)
		}
	}
	slices.SortFunc(v.Errors, func(a, b answerView) int { return cmp.Compare(a.Status, b.Status) })
	return v
}

// body is nil where there is none. Its members are those of the first kind of content.
func (f *apiFile) body(b *apiBody) *bodyView {
	if b == nil {
		return nil
	}
	v := &bodyView{Required: b.Required}
	for i, content := range b.Content {
		if i == 0 {
			v.Type, v.Members = f.typeOf(&content.Value.Schema), f.members(f.resolved(&content.Value.Schema), "")
		}
		v.Kinds = append(v.Kinds, content.Name)
		for _, e := range content.Value.Examples {
			v.Examples = append(v.Examples, exampleView{words(e.Name), content.Name, printJSON(&e.Value.Value)})
		}
	}
	return v
}

// words is a name such as onlyAnEndpoint in words.
func words(name string) string {
	var out strings.Builder
	for _, r := range name {
		if r >= 'A' && r <= 'Z' {
			out.WriteByte(' ')
			r += 'a' - 'A'
		}
		out.WriteRune(r)
	}
	return out.String()
}

// answer has an ID where it is one of the answers that operations share.
func (f *apiFile) answer(status string, r apiResponse) answerView {
	v := answerView{Status: status}
	if r.Ref != "" {
		v.ID = nameOf(r.Ref)
	}
	r = f.response(r)
	v.About = paragraphs(r.Description)
	for _, h := range r.Headers {
		v.Headers = append(v.Headers, h.Name+": "+f.header(h.Value).Description)
	}
	for _, content := range r.Content {
		v.Kind, v.Type = content.Name, f.typeOf(&content.Value.Schema)
		if content.Value.Example.Kind != 0 {
			v.Example = printJSON(&content.Value.Example)
		}
		if strings.HasPrefix(content.Name, "text/") {
			v.Example = content.Value.Example.Value
		}
	}
	return v
}

// statusOf is the status that operations answer with what they share.
func (f *apiFile) statusOf(name string) string {
	for _, path := range f.Paths {
		for _, op := range path.Value.operations() {
			for _, r := range op.Value.Responses {
				if nameOf(r.Value.Ref) == name {
					return r.Name
				}
			}
		}
	}
	return ""
}
