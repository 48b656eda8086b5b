package server

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/access"
	"postrider/policy"
	"postrider/server/api"
	"postrider/server/auth"
)

// What an address may request without a credential. Colleagues behind one proxy share an address.
var (
	loginsBegun  = policy.Bucket{Burst: 10, Every: 30 * time.Second}
	loginsPolled = policy.Bucket{Burst: 60, Every: 100 * time.Millisecond}
)

// limitLogins bounds the requests of an address, and notes the address for the user who approves the login.
func (s *Server) limitLogins(limit *auth.Rate, r api.Route) api.Route {
	next := r.Handle
	r.Handle = func(c echo.Context) error {
		if wait := limit.TryTake(auth.CallerFrom(c.Request()), time.Now()); wait > 0 {
			return tooManyLogins(wait, "too many logins from your address")
		}
		auth.ActAs(c, access.Actor{Address: c.RealIP()})
		return next(c)
	}
	return r
}

func tooManyLogins(wait time.Duration, what string) error {
	r := api.Refuse(http.StatusTooManyRequests, api.CodeTooManyRequests, "%s; wait for as long as Retry-After says", what)
	r.RetryAfter = wait
	return r
}
