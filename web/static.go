package web

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// static serves each file under its present name only: an old page next to a new build gets a 404 rather than a wrong
// file that it would keep for a year.
func (p *pages) static(c echo.Context) error {
	a, ok := p.assets[c.Param("file")]
	if !ok {
		return echo.ErrNotFound
	}
	c.Response().Header().Set(echo.HeaderCacheControl, "public, max-age=31536000, immutable")
	return c.Blob(http.StatusOK, a.kind, a.body)
}
