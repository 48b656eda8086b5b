// Package openapi makes the OpenAPI document of the REST API, and a page of it to read.
package openapi
