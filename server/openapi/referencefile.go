package openapi

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

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
