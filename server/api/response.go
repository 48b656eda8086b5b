package api

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// Response is a response that is more than a JSON body with status 200.
type Response interface {
	// Write sends the response.
	Write(c echo.Context) error
	// Bodies has a value of each body by its status; nil for a status without body.
	Bodies() map[int]any
}

// NoContent is the response 204.
type NoContent struct{}

// Write sends the response.
func (NoContent) Write(c echo.Context) error { return c.NoContent(http.StatusNoContent) }

// Bodies has the status 204.
func (NoContent) Bodies() map[int]any { return map[int]any{http.StatusNoContent: nil} }

// Created is the response 201.
type Created[T any] struct{ Body *T }

// Write sends the response.
func (r Created[T]) Write(c echo.Context) error { return c.JSON(http.StatusCreated, r.Body) }

// Bodies has the status 201.
func (r Created[T]) Bodies() map[int]any { return map[int]any{http.StatusCreated: *new(T)} }

// Tagged is the response 200 with the header ETag.
type Tagged[T any] struct {
	ETag string
	Body *T
}

// Write sends the response.
func (r Tagged[T]) Write(c echo.Context) error { return r.write(c, http.StatusOK) }

func (r Tagged[T]) write(c echo.Context, status int) error {
	c.Response().Header().Set("ETag", r.ETag)
	return c.JSON(status, r.Body)
}

// Bodies has the status 200.
func (r Tagged[T]) Bodies() map[int]any { return map[int]any{http.StatusOK: *new(T)} }

// Put is the response to a PUT with the header ETag: 201 if the request created what it names, otherwise 200.
type Put[T any] struct {
	Tagged[T]
	Created bool
}

// Write sends the response.
func (r Put[T]) Write(c echo.Context) error {
	if r.Created {
		return r.write(c, http.StatusCreated)
	}
	return r.Tagged.Write(c)
}

// Bodies has the statuses 200 and 201.
func (r Put[T]) Bodies() map[int]any {
	return map[int]any{http.StatusOK: *new(T), http.StatusCreated: *new(T)}
}

// Started is the response to a request that may start an operation: 202 with the operation, or 200 with what was done
// at once.
type Started[Done, Operation any] struct {
	Done      *Done
	Operation *Operation
}

// Write sends the response.
func (r Started[Done, Operation]) Write(c echo.Context) error {
	if r.Operation != nil {
		return c.JSON(http.StatusAccepted, r.Operation)
	}
	return c.JSON(http.StatusOK, r.Done)
}

// Bodies has the statuses 200 and 202.
func (r Started[Done, Operation]) Bodies() map[int]any {
	return map[int]any{http.StatusOK: *new(Done), http.StatusAccepted: *new(Operation)}
}
