package auth

import (
	"github.com/labstack/echo/v4"

	"postrider/access"
)

// What the audit calls whoever has the admin token, and whoever opens validationUrl.
const (
	adminName     = "admin"
	ValidatorName = "validationUrl"
)

// ActAs gives the request an identity: the store writes it into the audit of whatever is done.
func ActAs(c echo.Context, who access.Actor) {
	r := c.Request()
	c.SetRequest(r.WithContext(access.WithActor(r.Context(), who)))
}
