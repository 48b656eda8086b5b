// Package openapi has the OpenAPI document of the REST API, and a page that shows it. internal/gendocs generates the
// document from the routes of package server, their types and the comments on them.
package openapi

import (
	_ "embed"
	"fmt"
	"sync"

	"go.yaml.in/yaml/v3"
)

// Document is the OpenAPI document in YAML.
//
//go:embed openapi.yaml
var Document []byte

// file is the document as this package reads it.
type file struct {
	Tags       []struct{ Name, Description string }
	Paths      map[string]map[string]operation
	Components struct {
		Parameters map[string]parameter
		Schemas    map[string]struct {
			Properties map[string]struct{ Description string }
		}
	}
}

type operation struct {
	ID      string `yaml:"operationId"`
	Summary string
	Access  string `yaml:"x-access"`
	Tags    []string

	Parameters []parameter
}

type parameter struct{ Name, Description string }

var read = sync.OnceValue(func() (f file) {
	if err := yaml.Unmarshal(Document, &f); err != nil {
		panic(fmt.Sprintf("read the OpenAPI document: %v", err))
	}
	return f
})

// ParameterText is the text of a query parameter of the list at a path; "" for none.
func ParameterText(path, name string) string {
	for _, p := range read().Paths[path]["get"].Parameters {
		if p.Name == name {
			return p.Description
		}
	}
	return ""
}

// IDText is the text of a path parameter that several operations have; "" for none.
func IDText(name string) string {
	for _, p := range read().Components.Parameters {
		if p.Name == name {
			return p.Description
		}
	}
	return ""
}

// Description is the text of a member of a schema; "" for none.
func Description(schema, member string) string {
	return read().Components.Schemas[schema].Properties[member].Description
}
