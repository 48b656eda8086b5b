package server

import (
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"postrider/server/api"
	"postrider/server/openapi"
)

// Document returns the OpenAPI document, and the texts that are missing in it or unused.
func Document() ([]byte, []string, error) { return openapi.Document((&Server{}).operations()) }

// operations are all routes, for the OpenAPI document.
func (s *Server) operations() (list []openapi.Operation) {
	for _, r := range append(s.routes(), s.machineRoutes()...) {
		list = append(list, openapi.Operation{Method: r.method, Path: r.path, Access: r.access.scope(), Route: r.Route})
	}
	return list
}

func (s *Server) specification(c echo.Context) error {
	text, err := s.document()
	if err != nil {
		return err
	}
	return c.Blob(http.StatusOK, "application/yaml", text)
}

// healthz answers as long as the process lives. It asks nobody: a database that is away is no reason to restart.
func (s *Server) healthz(c echo.Context) error { return c.String(http.StatusOK, "ok") }

// scrapers are who may ask for metrics: they have the names of topics in them.
func (s *Server) scrapers() permission {
	if s.options.OpenMetrics {
		return anyone
	}
	return viewers
}

// metrics answers in Prometheus' text format.
func (s *Server) metrics(c echo.Context) error {
	if s.options.Metrics == nil {
		return echo.ErrNotFound
	}
	s.options.Metrics.ServeHTTP(c.Response(), c.Request())
	return nil
}

// readyz answers whether requests can be served.
func (s *Server) readyz(c echo.Context) error {
	err := s.options.Ready(c.Request().Context())
	if err == nil {
		return c.JSON(http.StatusOK, map[string]bool{"ready": true})
	}
	// Other errors name hosts and users of the database, and nobody had to show a credential to ask.
	var missing NotReadyError
	if !errors.As(err, &missing) {
		s.log.Warn("not ready", "error", err)
		missing = "not ready; the log says why"
	}
	return api.Refuse(http.StatusServiceUnavailable, api.CodeNotReady, "%s", missing)
}
