package api

import (
	"cmp"
	"net/http"

	"github.com/labstack/echo/v4"
)

// Response is a response that is not a JSON body with status 200.
type Response interface {
	// Content is the status and the body: nil for none, []byte for JSON text.
	Content() (status int, body any)
	// Bodies has a value of the body's type for each status; nil for a status without a body.
	Bodies() map[int]any
}

// write sends a response. A body with the member etag is sent with the header ETag.
func write(c echo.Context, out any) error {
	status, body := http.StatusOK, out
	if response, special := out.(Response); special {
		status, body = response.Content()
	}
	if tag := cmp.Or(etagOf(body), etagOf(out)); tag != "" {
		c.Response().Header().Set("ETag", tag)
	}
	switch text := body.(type) {
	case nil:
		return c.NoContent(status)
	case []byte:
		return c.JSONBlob(status, text)
	}
	return c.JSON(status, body)
}

// NoContent is the response 204.
type NoContent struct{}

// Content implements Response.
func (NoContent) Content() (int, any) { return http.StatusNoContent, nil }

// Bodies implements Response.
func (NoContent) Bodies() map[int]any { return map[int]any{http.StatusNoContent: nil} }

// Created is the response 201.
type Created[T any] struct{ Body *T }

// Content implements Response.
func (r Created[T]) Content() (int, any) { return http.StatusCreated, r.Body }

// Bodies implements Response.
func (r Created[T]) Bodies() map[int]any { return map[int]any{http.StatusCreated: *new(T)} }

// Put is the response to a PUT: 201 if the request created the object, otherwise 200.
type Put[T any] struct {
	Body    *T
	Created bool
}

// Content implements Response.
func (r Put[T]) Content() (int, any) {
	if r.Created {
		return http.StatusCreated, r.Body
	}
	return http.StatusOK, r.Body
}

// Bodies implements Response.
func (r Put[T]) Bodies() map[int]any {
	return map[int]any{http.StatusOK: *new(T), http.StatusCreated: *new(T)}
}

// Started is the response to a request that may start an operation: 202 with the operation, or 200 with the result.
type Started[Done, Operation any] struct {
	Done      *Done
	Operation *Operation
}

// Content implements Response.
func (r Started[Done, Operation]) Content() (int, any) {
	if r.Operation != nil {
		return http.StatusAccepted, r.Operation
	}
	return http.StatusOK, r.Done
}

// Bodies implements Response.
func (r Started[Done, Operation]) Bodies() map[int]any {
	return map[int]any{http.StatusOK: *new(Done), http.StatusAccepted: *new(Operation)}
}
