package openapi

import (
	"bytes"
	_ "embed"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"postrider/server/api"
)

// texts is the document without what Go types declare: types, limits, parameters, required members and responses to
// errors. Its operations are under their ids. Under x-shared it has examples with anchors, and the descriptions of
// members that several schemas have.
//
//go:embed texts.yaml
var texts []byte

// Operation is a route of the server.
type Operation struct {
	Method string
	// Path is echo's form: parameters begin with a colon.
	Path string
	// Access is the least scope of an API key for it, or none.
	Access string
	api.Route
}

// Document returns the OpenAPI document of the operations in YAML, and a list of missing and unused texts.
func Document(operations []Operation) ([]byte, []string, error) {
	var text yaml.Node
	if err := yaml.Unmarshal(texts, &text); err != nil {
		return nil, nil, fmt.Errorf("read texts.yaml: %w", err)
	}
	root := expand(text.Content[0])
	b := builder{root: root, shared: find(root, "x-shared", "members"), used: map[*yaml.Node]bool{}}
	remove(root, "x-shared")
	b.operations(operations)
	for _, schema := range members(find(root, "components", "schemas")) {
		listValues(schema)
	}
	for _, response := range members(find(root, "components", "responses")) {
		content(response, referTo("schemas", "ErrorResponse"))
	}
	for kind, member := range map[string]string{"schemas": "type", "parameters": "schema"} {
		for name, text := range members(find(b.root, "components", kind)) {
			if find(text, member) == nil {
				b.problem("the text of %s in %s is not used", name, kind)
			}
		}
	}
	for name, text := range members(b.shared) {
		if !b.used[text] {
			b.problem("the shared text of %s is not used", name)
		}
	}
	var document bytes.Buffer
	encoder := yaml.NewEncoder(&document)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		return nil, nil, fmt.Errorf("write the OpenAPI document: %w", err)
	}
	return document.Bytes(), b.problems, nil
}

// Description is the text of a component's member, or the one that all members with this name share; "" for none.
func Description(component, name string) string {
	var text yaml.Node
	if err := yaml.Unmarshal(texts, &text); err != nil {
		return ""
	}
	root := text.Content[0]
	if own := textAt(find(root, "components", "schemas", component, "properties"), name); own != "" {
		return own
	}
	return textAt(find(root, "x-shared", "members"), name)
}

// builder adds the declarations of Go types to the texts.
type builder struct {
	root     *yaml.Node
	shared   *yaml.Node          // descriptions by member
	used     map[*yaml.Node]bool // shared descriptions and parameters
	problems []string
}

func (b *builder) problem(format string, args ...any) {
	b.problems = append(b.problems, fmt.Sprintf(format, args...))
}

var pathParameter = regexp.MustCompile(`/:(\w+)`)

// operations fills paths with the operations, in the order of their texts.
func (b *builder) operations(list []Operation) {
	texts, paths := find(b.root, "operations"), &yaml.Node{Kind: yaml.MappingNode}
	for id, text := range members(texts) {
		i := slices.IndexFunc(list, func(op Operation) bool { return op.ID == id })
		if i < 0 {
			b.problem("the text of operation %s is not used", id)
			continue
		}
		b.operation(&list[i], text)
		path := need(paths, pathParameter.ReplaceAllString(list[i].Path, "/{$1}"))
		set(path, strings.ToLower(list[i].Method), text)
	}
	for _, op := range list {
		if find(texts, op.ID) == nil {
			b.problem("operation %s has no text", op.ID)
		}
	}
	remove(b.root, "operations")
	set(b.root, "paths", paths)
}

func (b *builder) operation(op *Operation, text *yaml.Node) {
	text.Content = append([]*yaml.Node{node("operationId"), node(op.ID)}, text.Content...)
	set(text, "x-access", node(op.Access))
	if op.Access == "none" {
		set(text, "security", node([]string{}))
	}
	if op.In == nil { // texts.yaml has the rest
		errorResponses(need(text, "responses"), op.Errors)
		return
	}
	b.parameters(op, text)
	if field, has := op.In.FieldByName("Body"); has && len(field.Index) == 1 {
		body := need(text, "requestBody")
		set(body, "required", node(field.Tag.Get("required") != "false"))
		content(body, b.schema(field.Type, field.Tag))
	}
	b.responses(op, text)
}

// parameters replaces the texts of parameters by a list of parameters.
func (b *builder) parameters(op *Operation, operation *yaml.Node) {
	own := need(operation, "parameters")
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for _, field := range reflect.VisibleFields(op.In) {
		for _, place := range []string{"path", "query", "header"} {
			if name, is := field.Tag.Lookup(place); is {
				list.Content = append(list.Content, b.parameter(op.ID, own, place, name, field))
			}
		}
	}
	for name := range members(own) {
		if !slices.ContainsFunc(list.Content, func(p *yaml.Node) bool { return textAt(p, "name") == name }) {
			b.problem("operation %s has no parameter %s, which has a text", op.ID, name)
		}
	}
	set(operation, "parameters", list)
}

// parameter is a parameter with the operation's own text, a reference to the component of this name, or a parameter
// with the shared description.
func (b *builder) parameter(
	operation string, own *yaml.Node, place, name string, field reflect.StructField,
) *yaml.Node {
	p, reference := need(&yaml.Node{Kind: yaml.MappingNode}, name), (*yaml.Node)(nil)
	if text := find(own, name); text != nil && text.Kind == yaml.MappingNode {
		p.Content = append(p.Content, text.Content...)
	} else if text != nil {
		set(p, "description", text)
	} else {
		for component, shared := range members(find(b.root, "components", "parameters")) {
			if textAt(shared, "name") == name && textAt(shared, "in") == place {
				p, reference = shared, referTo("parameters", component)
			}
		}
		if reference == nil && !b.describe(p, name) {
			b.problem("parameter %s of operation %s has no text", name, operation)
		}
	}
	if b.used[p] {
		return reference
	}
	b.used[p] = true
	set(p, "name", node(name))
	set(p, "in", node(place))
	if place == "path" {
		set(p, "required", node(true))
	}
	schema := b.schema(field.Type, field.Tag)
	remove(schema, "nullable")
	set(p, "schema", schema)
	if example, has := field.Tag.Lookup("example"); has && place == "path" && find(p, "example") == nil {
		set(p, "example", scalar(example))
	}
	if reference == nil {
		return p
	}
	return reference
}

// errorNames are the components of error responses by status.
var errorNames = map[int]string{
	http.StatusBadRequest: "BadRequest", http.StatusUnauthorized: "Unauthorized", http.StatusForbidden: "Forbidden",
	http.StatusNotFound: "NotFound", http.StatusConflict: "Conflict",
	http.StatusPreconditionFailed:    "PreconditionFailed",
	http.StatusRequestEntityTooLarge: "TooLarge", http.StatusUnsupportedMediaType: "UnsupportedMediaType",
	http.StatusTooManyRequests: "TooManyRequests", http.StatusInternalServerError: "InternalError",
	http.StatusServiceUnavailable: "Unavailable",
}

// errorResponses adds references to error responses.
func errorResponses(responses *yaml.Node, statuses []int) {
	for _, status := range statuses {
		set(responses, strconv.Itoa(status), referTo("responses", errorNames[status]))
	}
	for i := 0; i < len(responses.Content); i += 2 {
		responses.Content[i].Style = yaml.SingleQuotedStyle
	}
}

// responses adds the bodies of successful responses, and the errors that the operation can have.
func (b *builder) responses(op *Operation, operation *yaml.Node) {
	responses := need(operation, "responses")
	bodies := map[int]any{http.StatusOK: reflect.New(op.Out).Elem().Interface()}
	if response, special := bodies[http.StatusOK].(api.Response); special {
		bodies = response.Bodies()
	}
	for status := range members(responses) {
		if code, err := strconv.Atoi(status); err != nil || !slices.Contains(slices.Collect(maps.Keys(bodies)), code) {
			b.problem("operation %s has no response %s, which has a text", op.ID, status)
		}
	}
	for _, status := range slices.Sorted(maps.Keys(bodies)) {
		text := find(responses, strconv.Itoa(status))
		if text == nil {
			b.problem("response %d of operation %s has no text", status, op.ID)
			continue
		}
		if body := bodies[status]; body != nil {
			if hasETag(reflect.TypeOf(body)) {
				set(need(text, "headers"), "ETag", referTo("headers", "ETag"))
			}
			content(text, b.schema(reflect.TypeOf(body), ""))
		}
	}
	list := append([]int{
		http.StatusBadRequest, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable,
	}, op.Errors...)
	if op.Access != "none" {
		list = append(list, http.StatusUnauthorized, http.StatusForbidden)
	}
	if _, has := op.In.FieldByName("Body"); has {
		list = append(list, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	if _, has := op.In.FieldByName("IfMatch"); has {
		list = append(list, http.StatusPreconditionFailed)
	}
	slices.Sort(list)
	errorResponses(responses, list)
}

// hasETag reports whether a body has the member etag, which the header ETag repeats.
func hasETag(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && slices.ContainsFunc(api.Members(t), func(field reflect.StructField) bool {
		return strings.HasPrefix(field.Tag.Get("json"), "etag")
	})
}

// content sets the schema of each media type in the text of a body. Without media types, the text has the example or
// the examples by name of application/json.
func content(text, schema *yaml.Node) {
	types := need(text, "content")
	if len(types.Content) == 0 {
		media := need(types, "application/json")
		if example := find(text, "example"); example != nil {
			remove(text, "example")
			set(media, "example", example)
		}
		for name, example := range members(find(text, "examples")) {
			set(need(need(media, "examples"), name), "value", example)
		}
		remove(text, "examples")
	}
	for _, media := range members(types) {
		if find(media, "schema") == nil {
			set(media, "schema", schema)
		}
	}
}

// describe adds the shared description of a member, if there is one.
func (b *builder) describe(property *yaml.Node, name string) bool {
	text := find(b.shared, name)
	if text == nil {
		return false
	}
	b.used[text] = true
	set(property, "description", text)
	return true
}

// listValues replaces the texts of a schema's values by an enum and a list in the description.
func listValues(schema *yaml.Node) {
	values := find(schema, "values")
	if values == nil {
		return
	}
	description, enum := textAt(schema, "description")+"\n", []string{}
	for value, text := range members(values) {
		description += fmt.Sprintf("\n- `%s`: %s", value, text.Value)
		enum = append(enum, value)
	}
	remove(schema, "values")
	set(schema, "description", node(description))
	set(schema, "enum", node(enum))
}
