// Package api is what the REST API reads and writes: routes with typed requests and responses, bodies, pages of
// lists, entity tags and error responses.
package api
