package server

import (
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"postrider/server/api"
	"postrider/server/openapi"
)

// Operation is an operation of the REST API, for its document.
type Operation struct {
	Method string
	// Path is echo's form: parameters begin with a colon.
	Path string
	// Access is the least scope of an API key for it, or none.
	Access string
	api.Route
}

// Operations returns the operations in the order of the document.
func Operations() []Operation {
	var list []Operation
	for _, r := range (&Server{}).routes() {
		list = append(list, Operation{r.method, r.path, string(r.access), r.Route})
	}
	return list
}

func (s *Server) specification(c echo.Context) error {
	return c.Blob(http.StatusOK, "application/yaml", openapi.Document)
}

// healthz responds while the process runs, without the database: an outage is no reason for a restart.
func (s *Server) healthz(c echo.Context) error { return c.String(http.StatusOK, "ok") }

// metricsAccess is who may read metrics, which contain the names of topics.
func (s *Server) metricsAccess() permission {
	if s.options.OpenMetrics {
		return anyone
	}
	return read
}

// metrics responds in Prometheus' text format.
func (s *Server) metrics(c echo.Context) error {
	if s.options.Metrics == nil {
		return echo.ErrNotFound
	}
	s.options.Metrics.ServeHTTP(c.Response(), c.Request())
	return nil
}

// readyz responds whether requests can be served.
func (s *Server) readyz(c echo.Context) error {
	err := s.options.Ready(c.Request().Context())
	if err == nil {
		return c.JSON(http.StatusOK, map[string]bool{"ready": true})
	}
	// Other errors name hosts and users of the database, and /readyz needs no credential.
	var missing NotReadyError
	if !errors.As(err, &missing) {
		s.log.Warn("not ready", "error", err)
		missing = "not ready; the log has the cause"
	}
	return api.Reject(http.StatusServiceUnavailable, "NotReady", "%s", missing)
}
