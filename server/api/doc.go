// Package api has the types of REST requests and responses: routes, bodies, parameters, pages of lists, entity tags and
// error responses.
package api
