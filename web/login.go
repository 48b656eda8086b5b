package web

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/labstack/echo/v4"
)

// challenge makes a browser ask for a password. RFC 7617 names the charset, for tokens beyond ASCII.
const challenge = `Basic realm="postrider", charset="UTF-8"`

// login asks for the admin token as the password of HTTP Basic. There is no session and no cookie; but a browser that has learnt the
// password sends it with whatever it is made to ask here, and that is why forms go through sameOrigin.
func login(o Options) echo.MiddlewareFunc {
	if o.Open {
		return ownHostOnly
	}
	want := sha256.Sum256([]byte(o.AdminToken))
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			_, password, _ := c.Request().BasicAuth()
			if !sameToken(want, password) {
				c.Response().Header().Set(echo.HeaderWWWAuthenticate, challenge)
				return echo.ErrUnauthorized
			}
			return next(c)
		}
	}
}

// sameToken compares hashes, which have one length: the time it takes tells neither how much of a guess is right nor
// how long the token is.
func sameToken(want [sha256.Size]byte, guess string) bool {
	got := sha256.Sum256([]byte(guess))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

// ownHostOnly guards a dashboard without a login. The loopback interface keeps other machines out, but not a page in
// this machine's browser whose own name was pointed at 127.0.0.1 (DNS rebinding): to the browser that is one site. Such
// a request names that site as its host; an address cannot be rebound.
func ownHostOnly(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if !isOwnHost(c.Request().Host) {
			return echo.NewHTTPError(http.StatusMisdirectedRequest)
		}
		return next(c)
	}
}

func isOwnHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(host, "localhost")
}
