package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"postrider/internal/cli/rest"
	"postrider/internal/terminal"
)

// armReader reads the topics and event subscriptions of an Azure Resource Manager template. Source: Microsoft,
// Understand the structure and syntax of ARM templates, 2025.
type armReader struct {
	*applyFile
	subs []rest.Object // as in a list of the Azure CLI
}

// fromTemplate adds the topics and event subscriptions of a template, which `az bicep build` prints, or of the state or
// plan that `terraform show -json` prints. It returns false if the document is neither.
func (f *applyFile) fromTemplate(o rest.Object) bool {
	a := &armReader{applyFile: f}
	state := rest.PresentAt(o, "planned_values.root_module")
	if state == nil {
		state = rest.PresentAt(o, "values.root_module")
	}
	if module, ok := state.(rest.Object); ok {
		a.module(module)
	} else if o["resources"] != nil {
		a.template(o, nil, "")
	} else {
		return false
	}
	f.fromAzure(a.subs)
	return true
}

// module reads the azapi_resource entries of a module of Terraform and of its child modules.
func (a *armReader) module(m rest.Object) {
	for _, r := range rest.Objects(m, "resources") {
		values, _ := r["values"].(rest.Object)
		kind, _, _ := strings.Cut(textOf(values["type"]), "@")
		body, _ := values["body"].(rest.Object)
		if text := textOf(values["body"]); text != "" { // azapi 1
			_ = terminal.DecodeExactly([]byte(text), &body)
		}
		if r["type"] == "azapi_resource" {
			a.resource(rest.Object{
				"name": values["name"], "type": kind, "scope": values["parent_id"], "properties": body["properties"],
			}, "", "", textOf(r["address"]), nil)
		}
	}
	for _, child := range rest.Objects(m, "child_modules") {
		a.module(child)
	}
}

// template reads a template; given are the parameters that a deployment passes.
func (a *armReader) template(o, given rest.Object, at string) {
	s := &armScope{given: given}
	s.parameters, _ = o["parameters"].(rest.Object)
	s.variables, _ = o["variables"].(rest.Object)
	a.resources(o["resources"], "", "", at+"resources", s)
}

// resources reads a list of resources, or an object with symbolic names. within and parent are the type and the name of
// the resource around it.
func (a *armReader) resources(value any, within, parent, at string, s *armScope) {
	list, _ := value.([]any)
	for i, r := range list {
		if r, ok := r.(rest.Object); ok {
			a.resource(r, within, parent, fmt.Sprintf("%s[%d]", at, i), s)
		}
	}
	named, _ := value.(rest.Object)
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if r, ok := named[name].(rest.Object); ok && r["existing"] != true {
			a.resource(r, within, parent, at+"."+name, s)
		}
	}
}

func (a *armReader) resource(r rest.Object, within, parent, at string, s *armScope) {
	kind := strings.TrimPrefix(within+"/"+textOf(r["type"]), "/")
	lower := strings.ToLower(kind)
	if lower == "microsoft.resources/deployments" {
		inner, _ := rest.ValueAt(r, "properties.template").(rest.Object)
		given, _ := rest.ValueAt(r, "properties.parameters").(rest.Object)
		passed, _ := a.resolved(s, given, at+".properties.parameters", false).(rest.Object)
		a.template(inner, passed, at+".properties.template.")
		return
	}
	sub := strings.HasSuffix(lower, "/eventsubscriptions")
	if !sub && !strings.HasPrefix(lower, "microsoft.eventgrid/") {
		return
	}
	name, _ := a.resolved(s, r["name"], at+".name", true).(string)
	switch {
	case name == "":
		return
	case r["copy"] != nil:
		a.note(at, "copy is not supported")
		return
	case r["condition"] != nil && a.resolved(s, r["condition"], at+".condition", false) != true:
		a.note(at, "omitted, because its condition is not true")
		return
	}
	name = strings.TrimPrefix(parent+"/"+name, "/")
	parts := strings.Split(name, "/")
	last := parts[len(parts)-1]
	properties, _ := a.resolved(s, r["properties"], at+".properties", false).(rest.Object)
	switch {
	case sub:
		topic := textOf(a.resolved(s, r["scope"], at+".scope", true))
		if lower = strings.Replace(lower, "/providers/", "/", 1); strings.HasSuffix(lower, "/topics/eventsubscriptions") {
			parts = slices.DeleteFunc(parts, func(p string) bool { return strings.EqualFold(p, "Microsoft.EventGrid") })
			topic = cmp.Or(topic, "Microsoft.EventGrid/topics/"+parts[max(0, len(parts)-2)])
		}
		flat := rest.Object{"type": kind, "name": last, "topic": "/" + strings.TrimPrefix(topic, "/")}
		maps.Copy(flat, properties)
		a.subs = append(a.subs, flat)
	case strings.HasSuffix(lower, "/topics"):
		t := present(properties, "inputSchema", "inputSchemaMapping", "eventRetentionInDays")
		if t["name"] = last; strings.Contains(lower, "/namespaces/") {
			t["kind"] = "namespace"
		}
		a.add("topics", t)
	case !strings.HasSuffix(lower, "/namespaces") && !strings.HasSuffix(lower, "/domains"):
		a.note(at, "resources of type %s are not supported", terminal.Cell(kind))
	}
	a.resources(r["resources"], kind, name, at+".resources", s)
}

// resolved is a value without expressions. It notes and removes those that literals do not resolve. ids, or the name
// resourceId, accepts the ids of resources, which then have no subscription and resource group.
func (a *armReader) resolved(s *armScope, value any, at string, ids bool) any {
	switch v := value.(type) {
	case rest.Object:
		found := rest.Object{}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if inner := a.resolved(s, v[name], at+"."+name, ids || name == "resourceId"); inner != nil {
				found[name] = inner
			}
		}
		return found
	case []any:
		found := []any{}
		for i, entry := range v {
			if inner := a.resolved(s, entry, fmt.Sprintf("%s[%d]", at, i), ids); inner != nil {
				found = append(found, inner)
			}
		}
		return found
	case string:
		if s == nil { // Terraform has resolved it
			return v
		}
		scope := *s
		scope.ids = ids
		if scope.left == nil {
			scope.left = new(armBudget)
		}
		found, err := scope.text(v)
		if err != nil {
			a.note(at, "%s is not supported: %v", terminal.Cell(v), err)
			return nil
		}
		return found
	}
	return value
}

// armScope has the values that expressions name.
type armScope struct {
	parameters, variables, given rest.Object
	ids                          bool
	left                         *int // of armBudget
}

// armBudget limits the expressions that a value needs, and the bytes of their results.
const (
	armBudget      = 1 << 20
	expressionCost = 256
)

// text evaluates a string, which is an expression if it is in brackets.
func (s *armScope) text(text string) (any, error) {
	inner, expression := strings.CutPrefix(text, "[")
	if !expression || !strings.HasSuffix(text, "]") {
		return text, nil
	}
	if strings.HasPrefix(inner, "[") {
		return inner, nil
	}
	inner = strings.TrimSuffix(inner, "]")
	p := &armParser{s: s, tokens: armToken.FindAllString(inner, -1)}
	value, err := p.expression()
	if err == nil && (len(p.tokens) > 0 || strings.TrimSpace(armToken.ReplaceAllString(inner, "")) != "") {
		err = errOtherForm
	}
	return value, err
}

// literal evaluates a default value or a variable.
func (s *armScope) literal(value any) (any, error) {
	if text, ok := value.(string); ok {
		return s.text(text)
	}
	a := &armReader{applyFile: &applyFile{}}
	found := a.resolved(s, value, "", s.ids)
	if len(a.notes) > 0 {
		return nil, errors.New("its value has other expressions")
	}
	return found, nil
}

var (
	armToken     = regexp.MustCompile(`'(?:[^']|'')*'|[\w-]+|[(),.]`)
	errOtherForm = errors.New("the expression has another form than a call of a function")
)

// armParser evaluates an expression; tokens are the rest.
type armParser struct {
	s      *armScope
	tokens []string
}

// take returns the next token, "" after the last one.
func (p *armParser) take() (token string) {
	if len(p.tokens) > 0 {
		token, p.tokens = p.tokens[0], p.tokens[1:]
	}
	return token
}

func (p *armParser) nextIs(token string) bool { return len(p.tokens) > 0 && p.tokens[0] == token }

func (p *armParser) expression() (any, error) {
	if *p.s.left -= expressionCost; *p.s.left < 0 {
		return nil, errors.New("it is too long, or contains itself")
	}
	name := p.take()
	if text, quoted := strings.CutPrefix(name, "'"); quoted {
		return strings.ReplaceAll(strings.TrimSuffix(text, "'"), "''", "'"), nil
	}
	if n, err := strconv.Atoi(name); err == nil {
		return n, nil
	}
	if p.take() != "(" {
		return nil, errOtherForm
	}
	var args []any
	for !p.nextIs(")") {
		if len(args) > 0 && p.take() != "," {
			return nil, errors.New("a bracket is not closed")
		}
		value, err := p.expression()
		if err != nil {
			return nil, err
		}
		args = append(args, value)
	}
	p.take()
	value, err := p.s.call(strings.ToLower(name), args)
	for err == nil && p.nextIs(".") {
		p.take()
		o, _ := value.(rest.Object)
		member := p.take()
		if value = o[member]; value == nil {
			err = fmt.Errorf("there is no value of %s", member)
		}
	}
	return value, err
}

// call evaluates a function.
func (s *armScope) call(name string, args []any) (any, error) {
	texts := make([]string, len(args))
	for i, value := range args {
		texts[i] = fmt.Sprint(value)
		*s.left -= len(texts[i])
	}
	switch {
	case name == "parameters" && len(args) == 1:
		if value := rest.ValueAt(s.given, texts[0]+".value"); value != nil {
			return value, nil
		}
		if value := rest.ValueAt(s.parameters, texts[0]+".defaultValue"); value != nil {
			return s.literal(value)
		}
		return nil, fmt.Errorf("parameter %s has no default value", texts[0])
	case name == "variables" && len(args) == 1 && s.variables[texts[0]] != nil:
		return s.literal(s.variables[texts[0]])
	case name == "true", name == "false":
		return name == "true", nil
	case name == "concat":
		return strings.Join(texts, ""), nil
	case name == "format" && len(args) > 0:
		text := texts[0]
		for i, value := range texts[1:] {
			text = strings.ReplaceAll(text, fmt.Sprintf("{%d}", i), value)
		}
		return text, nil
	case name == "resourceid" && s.ids:
		for len(texts) > 0 && !strings.Contains(texts[0], "/") { // subscription and resource group
			texts = texts[1:]
		}
		if len(texts) == 0 {
			break
		}
		provider, kinds, _ := strings.Cut(texts[0], "/")
		id := "/providers/" + provider
		for i, kind := range strings.Split(kinds, "/") {
			if i+1 < len(texts) {
				id += "/" + kind + "/" + texts[i+1]
			}
		}
		return id, nil
	}
	return nil, fmt.Errorf("function %s has no literal value", name)
}
