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

// texts is the document without what the code declares: types, limits, parameters, required members and the responses
// of errors. Operations and schemas that are not declared in Go are complete in it.
//
//go:embed texts.yaml
var texts []byte

// Operation is a route of the server, as the document describes it.
type Operation struct {
	Method string
	// Path is echo's: parameters begin with a colon.
	Path string
	// Access is the least scope of an API key that may use it, publish for publishers, or none.
	Access string
	api.Route
}

// Document returns the OpenAPI document of the operations, in YAML. The list names the texts that
// are missing or unused.
func Document(operations []Operation) ([]byte, []string, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(texts, &root); err != nil {
		return nil, nil, fmt.Errorf("read texts.yaml: %w", err)
	}
	b := builder{root: root.Content[0], done: map[*yaml.Node]bool{}}
	for i := range operations {
		b.operation(&operations[i])
	}
	b.findUnused()
	var document bytes.Buffer
	encoder := yaml.NewEncoder(&document)
	encoder.SetIndent(2)
	if err := encoder.Encode(&root); err != nil {
		return nil, nil, fmt.Errorf("write the OpenAPI document: %w", err)
	}
	return document.Bytes(), b.problems, nil
}

// builder adds to the texts what the code declares.
type builder struct {
	root     *yaml.Node
	done     map[*yaml.Node]bool // operations and components that were used
	problems []string
}

func (b *builder) problem(format string, args ...any) {
	b.problems = append(b.problems, fmt.Sprintf(format, args...))
}

var (
	pathParameter = regexp.MustCompile(`:(\w+)`)
	// operationOrder and schemaOrder are the members of an operation and a schema in the document's order.
	operationOrder = []string{
		"tags", "operationId", "x-access", "summary", "description", "security", "parameters", "requestBody", "responses",
	}
	schemaOrder = []string{"type", "description", "required", "properties"}
)

func (b *builder) operation(op *Operation) {
	if op.In == nil {
		return // complete in the texts
	}
	path := pathParameter.ReplaceAllString(op.Path, "{$1}")
	text := find(b.root, "paths", path, strings.ToLower(op.Method))
	if id := find(text, "operationId"); id == nil || id.Value != op.ID {
		b.problem("operation %s has no text at %s %s", op.ID, op.Method, path)
		return
	}
	b.done[text] = true
	set(text, "x-access", node(op.Access))
	if op.Access == "none" {
		set(text, "security", node([]string{}))
	}
	b.parameters(op, text)
	if field, has := op.In.FieldByName("Body"); has && len(field.Index) == 1 {
		body := need(text, "requestBody")
		set(body, "required", node(field.Tag.Get("required") != "false"))
		order(body, []string{"required"})
		b.content(need(body, "content"), b.schema(field.Type, field.Tag))
	}
	b.responses(op, text)
	order(text, operationOrder)
}

// parameters replaces the texts of parameters by a list of the parameters.
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

// parameter describes a parameter by the operation's own text, or else refers to the component of that name.
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
		if reference == nil {
			b.problem("parameter %s of operation %s has no text", name, operation)
		}
	}
	if b.done[p] {
		return reference
	}
	b.done[p] = true
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
	order(p, []string{"name", "in", "required", "description", "schema", "example"})
	if reference == nil {
		return p
	}
	return reference
}

// errorResponses are the components of error responses by status.
var errorResponses = map[int]string{
	http.StatusBadRequest: "BadRequest", http.StatusUnauthorized: "Unauthorized", http.StatusForbidden: "Forbidden",
	http.StatusNotFound: "NotFound", http.StatusConflict: "Conflict",
	http.StatusPreconditionFailed:    "PreconditionFailed",
	http.StatusRequestEntityTooLarge: "TooLarge", http.StatusUnsupportedMediaType: "UnsupportedMediaType",
	http.StatusTooManyRequests: "TooManyRequests", http.StatusInternalServerError: "InternalError",
	http.StatusServiceUnavailable: "Unavailable",
}

// responses adds the bodies of successful responses and the errors that the operation can have.
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
		if _, tagged := op.Out.FieldByName("ETag"); tagged {
			headers := need(text, "headers")
			set(headers, "ETag", referTo("headers", "ETag"))
		}
		if body := bodies[status]; body != nil {
			b.content(need(text, "content"), b.schema(reflect.TypeOf(body), ""))
		}
		order(text, []string{"description", "headers", "content"})
	}
	for _, status := range op.errors() {
		set(responses, strconv.Itoa(status), referTo("responses", errorResponses[status]))
	}
	for i := 0; i < len(responses.Content); i += 2 {
		responses.Content[i].Style = yaml.SingleQuotedStyle
	}
}

// errors are the statuses of errors that an operation can respond with.
func (op *Operation) errors() []int {
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
	return list
}

// content sets the schema of each media type that has a text; of application/json if there is none.
func (b *builder) content(content, schema *yaml.Node) {
	if len(content.Content) == 0 {
		need(content, "application/json")
	}
	for _, media := range members(content) {
		if find(media, "schema") == nil {
			set(media, "schema", schema)
		}
		order(media, []string{"schema", "example", "examples"})
	}
}

// findUnused reports texts of operations and schemas that no operation uses.
func (b *builder) findUnused() {
	for path, item := range members(find(b.root, "paths")) {
		for method, operation := range members(item) {
			if method != "parameters" && find(operation, "x-access") == nil {
				b.problem("the text of %s %s is not used", strings.ToUpper(method), path)
			}
		}
	}
	for name, schema := range members(find(b.root, "components", "schemas")) {
		if find(schema, "type") == nil {
			b.problem("the text of schema %s is not used", name)
		}
	}
	for name, parameter := range members(find(b.root, "components", "parameters")) {
		if find(parameter, "schema") == nil {
			b.problem("the text of parameter %s is not used", name)
		}
	}
}
