// Package api is what the REST API reads and writes: the types and routes generated from openapi.yaml, bodies, pages of
// lists, entity tags and error responses.
package api
