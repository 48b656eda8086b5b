// Package openapi builds the OpenAPI document of the REST API from texts.yaml and Go types, and a page that shows it.
package openapi
