package openapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The arguments of the templates in page.html.
type (
	// operationView is an operation with its address and all parameters.
	operationView struct {
		apiOperation
		Method, Path string
		All          []apiParameter
	}
	// responseView is a response. Name is that of a shared one.
	responseView struct {
		apiResponse
		Name, Status string
	}
	// memberView is a parameter, a property or a credential.
	memberView struct {
		Name, Place string
		Required    bool
		Type        typeView
		Rules       []string
		About       [][]phrase
	}
	// typeView is a type in words; Schema is the name of a schema on the page.
	typeView struct{ Before, Schema, After string }
	// phrase is a part of a text; code was between backticks.
	phrase struct {
		Text string
		Code bool
	}
)

// functions are the functions that page.html calls.
func (f *apiFile) functions() template.FuncMap {
	return template.FuncMap{
		"lower": strings.ToLower, "prose": paragraphs, "words": words, "json": printJSON, "curl": curl,
		"anchor":  func(tag string) string { return "tag-" + strings.ReplaceAll(tag, " ", "-") },
		"needs":   func(access string) string { return accessTexts[access] },
		"members": func(s *apiSchema) []memberView { return f.members(f.resolved(s), "") },
		"type":    f.typeOf, "credentials": f.credentials, "operations": f.operations, "parameters": f.parameters,
		"responses": f.responses, "header": f.header, "errors": f.errors, "schemas": f.schemas,
	}
}

// accessTexts describe x-access.
var accessTexts = map[string]string{
	"none":    "Needs no credential.",
	"publish": "Needs an access key of the topic, or an API key with scope publish or admin.",
	"receive": "Needs an access key of the topic, or an API key with scope receive or admin.",
	"read":    "Needs an API key with scope read, operate or admin.",
	"query":   "Needs an API key with scope read, operate or admin that may run queries.",
	"operate": "Needs an API key with scope operate or admin.",
	"admin":   "Needs an API key with scope admin, or the admin token.",
}

func (f *apiFile) credentials() (list []memberView) {
	for _, e := range f.Components.SecuritySchemes {
		shown := memberView{Name: "Authorization: Bearer", About: paragraphs(e.Value.Description)}
		if e.Value.Type == "apiKey" {
			shown.Name, shown.Place = e.Value.Name, e.Value.In
		}
		list = append(list, shown)
	}
	return list
}

// operations are the operations with a tag.
func (f *apiFile) operations(tag string) (list []operationView) {
	for _, path := range f.Paths {
		p := path.Value
		for _, e := range []entry[*apiOperation]{
			{"GET", p.Get}, {"PUT", p.Put}, {"PATCH", p.Patch}, {"POST", p.Post}, {"DELETE", p.Delete},
		} {
			if e.Value == nil || !slices.Contains(e.Value.Tags, tag) {
				continue
			}
			op := operationView{apiOperation: *e.Value, Method: e.Name, Path: path.Name}
			for _, parameter := range slices.Concat(p.Parameters, op.Parameters) {
				if parameter.Ref != "" {
					parameter = f.Components.Parameters.of(parameter.Ref)
				}
				op.All = append(op.All, parameter)
			}
			list = append(list, op)
		}
	}
	return list
}

func (f *apiFile) parameters(op operationView) (list []memberView) {
	for i := range op.All {
		p := &op.All[i]
		m := f.member(p.Name, &p.Schema, p.Required)
		m.Place, m.About = p.In, paragraphs(p.Description)
		list = append(list, m)
	}
	return list
}

// responses are the responses of an operation.
func (f *apiFile) responses(op operationView) (list []responseView) {
	for _, e := range op.Responses {
		r := responseView{apiResponse: e.Value, Status: e.Name}
		if e.Value.Ref != "" {
			r.Name = nameOf(e.Value.Ref)
		}
		list = append(list, r)
	}
	return list
}

func (f *apiFile) header(h apiHeader) string {
	if h.Ref != "" {
		h = f.Components.Headers.of(h.Ref)
	}
	return h.Description
}

// errors are the shared responses.
func (f *apiFile) errors() (list []responseView) {
	for _, e := range f.Components.Responses {
		r := responseView{apiResponse: e.Value, Name: e.Name}
		for status, name := range errorNames {
			if name == e.Name {
				r.Status = strconv.Itoa(status)
			}
		}
		list = append(list, r)
	}
	return list
}

// schemas are the schemas by name.
func (f *apiFile) schemas() []entry[apiSchema] {
	return slices.SortedFunc(slices.Values(f.Components.Schemas),
		func(a, b entry[apiSchema]) int { return cmp.Compare(a.Name, b.Name) })
}

// alone is the schema that a property with a description refers to, in allOf, or in anyOf with JsonNull.
func (s *apiSchema) alone() *apiSchema {
	if list := slices.Concat(s.AllOf, s.AnyOf); len(list) > 0 {
		return &list[0]
	}
	return s
}

// resolved follows $ref.
func (f *apiFile) resolved(s *apiSchema) *apiSchema {
	s = s.alone()
	if s.Ref == "" {
		return s
	}
	named := f.Components.Schemas.of(s.Ref)
	return &named
}

// members are the properties of a schema. The properties of an inline object follow it.
func (f *apiFile) members(s *apiSchema, before string) (list []memberView) {
	for _, p := range s.Properties {
		list = append(list, f.member(before+p.Name, &p.Value, slices.Contains(s.Required, p.Name)))
		list = append(list, f.members(&p.Value, before+p.Name+".")...)
	}
	return list
}

// member describes a property. One without a description has that of its type.
func (f *apiFile) member(name string, s *apiSchema, required bool) memberView {
	named := f.resolved(s)
	m := memberView{Name: name, Required: required, Type: f.typeOf(s), Rules: rules(s), About: paragraphs(s.Description)}
	if named == s {
		return m
	}
	m.Rules = append(m.Rules, rules(named)...)
	if s.Description == "" || len(named.Enum) > 0 {
		m.About = append(paragraphs(named.Description), m.About...)
	}
	return m
}

// typeOf is a type in words.
func (f *apiFile) typeOf(s *apiSchema) (t typeView) {
	named := s.alone()
	switch {
	case named.Ref != "":
		t.Schema = nameOf(named.Ref)
	case len(s.OneOf) > 0:
		t.Before = "one of several objects"
	case s.Items != nil:
		t = f.typeOf(s.Items)
		t.Before = "array of " + t.Before
	case s.Format == "date-time":
		t.Before = "time (RFC 3339)"
	default:
		t.Before = cmp.Or(s.Type, "any JSON")
	}
	if s.Nullable || len(s.AnyOf) > 0 {
		t.After += " or null"
	}
	return t
}

// rules are the limits of a value, in words.
func rules(s *apiSchema) (list []string) {
	add := func(least, most, unit string) {
		switch {
		case least != "" && most != "":
			list = append(list, least+" to "+most+unit)
		case least != "":
			list = append(list, "at least "+least+unit)
		case most != "":
			list = append(list, "at most "+most+unit)
		}
	}
	add(s.Minimum, s.Maximum, "")
	add(s.MinLength, s.MaxLength, " characters")
	add(s.MinItems, s.MaxItems, " entries")
	if s.Items != nil {
		for _, rule := range rules(s.Items) {
			list = append(list, "each "+rule)
		}
	}
	if len(s.Enum) > 0 {
		list = append(list, strings.TrimSuffix(strings.Join(s.Enum, ", "), ", ")) // the type mentions null
	}
	if s.Default != nil {
		list = append(list, "default "+*s.Default)
	}
	return list
}

// curl is a shell command for an operation with its first example.
func curl(op operationView) string {
	path, query := op.Path, ""
	for _, p := range op.All {
		switch {
		case p.In == "path":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", p.Example)
		case p.In == "query" && p.Required:
			query = "?" + p.Name + "=$" + strings.ToUpper(p.Name)
		}
	}
	line := []string{`curl -X ` + op.Method + ` "$API` + path + query + `"`}
	if op.Method == "GET" {
		line[0] = `curl "$API` + path + query + `"`
	}
	switch op.Access {
	case "none":
	case "publish", "receive":
		line = append(line, `-H "aeg-sas-key: $TOPIC_KEY"`)
	default:
		line = append(line, `-H "authorization: Bearer $POSTRIDER_API_KEY"`)
	}
	if op.Body != nil && len(op.Body.Content) > 0 && len(op.Body.Content[0].Value.Examples) > 0 {
		content := op.Body.Content[0]
		line = append(line, `-H 'content-type: `+content.Name+`'`,
			"-d "+shellQuoted(printJSON(&content.Value.Examples[0].Value.Value)))
	}
	return strings.Join(line, " \\\n  ")
}

// shellQuoted is a text as a word of the shell.
func shellQuoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

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

// paragraphs reads a description: paragraphs between empty lines, entries of lists, and code in backticks.
func paragraphs(text string) (list [][]phrase) {
	text = strings.ReplaceAll(strings.TrimSpace(text), "\n- ", "\n\n• ")
	for part := range strings.SplitSeq(text, "\n\n") {
		var phrases []phrase
		for i, piece := range strings.Split(strings.Join(strings.Fields(part), " "), "`") {
			if piece != "" {
				phrases = append(phrases, phrase{piece, i%2 == 1})
			}
		}
		if phrases != nil {
			list = append(list, phrases)
		}
	}
	return list
}

// printJSON is a node as JSON.
func printJSON(n *yaml.Node) string { return printNode(n, "") }

// printNode writes objects and arrays of at most 92 characters on one line.
func printNode(n *yaml.Node, indent string) string {
	if n.Kind == yaml.ScalarNode {
		return scalarJSON(n)
	}
	open, shut, step := "[", "]", 1
	if n.Kind == yaml.MappingNode {
		open, shut, step = "{", "}", 2
	}
	parts := make([]string, 0, len(n.Content))
	for i := 0; i < len(n.Content); i += step {
		name := ""
		if step == 2 {
			name = quoteJSON(n.Content[i].Value) + ": "
		}
		parts = append(parts, name+printNode(n.Content[i+step-1], indent+"  "))
	}
	line := open + strings.Join(parts, ", ") + shut
	if len(line)+len(indent) <= 92 || len(parts) == 0 {
		return line
	}
	return open + "\n" + indent + "  " + strings.Join(parts, ",\n"+indent+"  ") + "\n" + indent + shut
}

func scalarJSON(n *yaml.Node) string {
	switch n.ShortTag() {
	case "!!int", "!!float", "!!bool", "!!null":
		return n.Value
	default:
		return quoteJSON(n.Value)
	}
}

// quoteJSON does not escape <, > and &: the template does.
func quoteJSON(text string) string {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // strings cannot fail
	return strings.TrimSuffix(out.String(), "\n")
}

// apiFile is the OpenAPI document as the page shows it, in its order.
type apiFile struct {
	Info       struct{ Title, Version, Description string }
	Tags       []struct{ Name, Description string }
	Paths      ordered[apiPath]
	Components struct {
		SecuritySchemes ordered[apiCredential] `yaml:"securitySchemes"`
		Parameters      ordered[apiParameter]
		Headers         ordered[apiHeader]
		Responses       ordered[apiResponse]
		Schemas         ordered[apiSchema]
	}
}

type apiPath struct {
	Parameters                    []apiParameter
	Get, Put, Post, Patch, Delete *apiOperation
}

type apiOperation struct {
	Tags                 []string
	ID                   string `yaml:"operationId"`
	Access               string `yaml:"x-access"`
	Summary, Description string
	Parameters           []apiParameter
	Body                 *apiBody `yaml:"requestBody"`
	Responses            ordered[apiResponse]
}

type apiCredential struct{ Type, In, Name, Scheme, Description string }

type apiParameter struct {
	Ref                   string `yaml:"$ref"`
	Name, In, Description string
	Required              bool
	Schema                apiSchema
	Example               string
}

type apiBody struct {
	Required bool
	Content  ordered[apiContent]
}

type apiResponse struct {
	Ref         string `yaml:"$ref"`
	Description string
	Headers     ordered[apiHeader]
	Content     ordered[apiContent]
}

type apiHeader struct {
	Ref         string `yaml:"$ref"`
	Description string
}

type apiContent struct {
	Schema   apiSchema
	Example  yaml.Node
	Examples ordered[struct{ Value yaml.Node }]
}

// apiSchema is a schema, or a property.
type apiSchema struct {
	Ref                       string `yaml:"$ref"`
	Type, Format, Description string
	Nullable                  bool
	Enum, Required            []string
	Default                   *string
	Minimum, Maximum          string
	MinLength                 string `yaml:"minLength"`
	MaxLength                 string `yaml:"maxLength"`
	MinItems                  string `yaml:"minItems"`
	MaxItems                  string `yaml:"maxItems"`
	Properties                ordered[apiSchema]
	Items                     *apiSchema
	AllOf                     []apiSchema `yaml:"allOf"`
	AnyOf                     []apiSchema `yaml:"anyOf"`
	OneOf                     []apiSchema `yaml:"oneOf"`
}

// ordered is a mapping in its order.
type ordered[T any] []entry[T]

type entry[T any] struct {
	Name  string
	Value T
}

// UnmarshalYAML reads a mapping.
func (o *ordered[T]) UnmarshalYAML(node *yaml.Node) error {
	for i := 0; i+1 < len(node.Content); i += 2 {
		e := entry[T]{Name: node.Content[i].Value}
		if err := node.Content[i+1].Decode(&e.Value); err != nil {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
		*o = append(*o, e)
	}
	return nil
}

// of is the value that a $ref names; the zero value if it does not exist.
func (o ordered[T]) of(ref string) (value T) {
	name := nameOf(ref)
	for _, e := range o {
		if e.Name == name {
			return e.Value
		}
	}
	return value
}

// nameOf is the last part of a $ref: #/components/schemas/Topic.
func nameOf(ref string) string { return ref[strings.LastIndex(ref, "/")+1:] }

func readAPIFile(text []byte) (*apiFile, error) {
	var f apiFile
	if err := yaml.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	return &f, nil
}
