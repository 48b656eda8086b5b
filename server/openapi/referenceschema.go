package openapi

import (
	"slices"
	"strings"
)

// alone is the schema that a property with its own description refers to: the only one in allOf, or, where null is
// allowed, the first one in anyOf.
func (s *apiSchema) alone() *apiSchema {
	switch {
	case len(s.AllOf) == 1:
		return &s.AllOf[0]
	case len(s.AnyOf) == 2:
		return &s.AnyOf[0]
	}
	return s
}

// resolved follows a $ref, also one in allOf or anyOf.
func (f *apiFile) resolved(s *apiSchema) *apiSchema {
	s = s.alone()
	if s.Ref == "" {
		return s
	}
	named := f.Components.Schemas.of(s.Ref)
	return &named
}

// members are the properties of a schema. Those of an object that has no name follow it, with its name before theirs.
func (f *apiFile) members(s *apiSchema, before string) (list []memberView) {
	for _, p := range s.Properties {
		list = append(list, f.member(before+p.Name, &p.Value, slices.Contains(s.Required, p.Name)))
		list = append(list, f.members(&p.Value, before+p.Name+".")...)
	}
	return list
}

// member describes a property. What nothing is said of has what is said of its type.
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

// typeOf says a type in words.
func (f *apiFile) typeOf(s *apiSchema) typeView {
	t := typeView{Before: simpleType(s)}
	named := s.alone()
	switch {
	case named.Ref != "":
		t = typeView{Schema: nameOf(named.Ref)}
	case len(s.OneOf) > 0:
		t.Before = "one of " + namesOf(s.OneOf)
	case s.Items != nil:
		t = f.typeOf(s.Items)
		t.Before = "array of " + t.Before
	}
	if s.Nullable || len(s.AnyOf) > 0 {
		t.After += " or null"
	}
	return t
}

func namesOf(list []apiSchema) string {
	var names []string
	for _, s := range list {
		names = append(names, nameOf(s.Ref))
	}
	return strings.Join(names, ", ")
}

func simpleType(s *apiSchema) string {
	switch {
	case s.Format == "date-time":
		return "time (RFC 3339)"
	case s.Type == "":
		return "any JSON"
	default:
		return s.Type
	}
}

// rules are the bounds of a value, in words.
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
		list = append(list, strings.TrimSuffix(strings.Join(s.Enum, ", "), ", ")) // null is the type's "or null"
	}
	if s.Default != nil {
		list = append(list, "default "+*s.Default)
	}
	return list
}

// curl is a line to try an operation with, made of the file's examples.
func curl(method, path string, op *apiOperation, parameters []apiParameter) string {
	query := ""
	for _, p := range parameters {
		switch {
		case p.In == "path":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", p.Example)
		case p.In == "query" && p.Required:
			query = "?" + p.Name + "=$" + strings.ToUpper(p.Name)
		}
	}
	line := []string{`curl "$API` + path + query + `"`}
	if method != "GET" {
		line[0] = `curl -X ` + method + ` "$API` + path + query + `"`
	}
	switch op.Access {
	case "none":
	case "publish":
		line = append(line, `-H "aeg-sas-key: $TOPIC_KEY"`)
	default:
		line = append(line, `-H "authorization: Bearer $POSTRIDER_API_KEY"`)
	}
	if kind, body := firstExample(op.Body); body != "" {
		line = append(line, `-H 'content-type: `+kind+`'`, "-d "+shellQuoted(body))
	}
	return strings.Join(line, " \\\n  ")
}

// firstExample is "" where there is no body.
func firstExample(b *apiBody) (kind, text string) {
	if b == nil {
		return "", ""
	}
	for _, content := range b.Content {
		for _, e := range content.Value.Examples {
			return content.Name, printJSON(&e.Value.Value)
		}
	}
	return "", ""
}
