package site

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/internal/access"
	"postrider/internal/endpointconf"
	"postrider/internal/postgres"
)

const (
	// SessionCookie has the token of a session. Because of its prefix, browsers accept it only over HTTPS or from
	// localhost, and other hosts of the domain cannot set it.
	SessionCookie = "__Host-postrider"
	// TriedCookie marks a sign-in. If the sign-in page gets it without a session, the browser has rejected the session's
	// cookie.
	TriedCookie = "postrider-tried"
	// sessionLife is the longest life of a session. Package access decides when it ends.
	sessionLife = 7 * 24 * time.Hour
	// sessionKey is the key of the session in the context of a request.
	sessionKey = "postrider.session"
	// AdminName is the actor in the audit for the admin token and for a dashboard without sign-in.
	AdminName = "admin"
)

// SetSession stores the token of a session in the browser; "" removes it.
func SetSession(c echo.Context, token string) {
	session := &http.Cookie{
		Name: SessionCookie, Value: token, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		MaxAge: int(sessionLife.Seconds()),
	}
	tried := &http.Cookie{ //nolint:gosec // it holds no secret and must also reach pages without HTTPS
		Name: TriedCookie, Value: "1", Path: "/ui/sign-in", HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: 10,
	}
	if token == "" {
		tried.Value, session.MaxAge, tried.MaxAge = "", -1, -1
	}
	c.SetCookie(session)
	c.SetCookie(tried)
}

// SessionIn is the session of the request; nil on a dashboard without sign-in.
func SessionIn(c echo.Context) *access.Session {
	session, _ := c.Get(sessionKey).(*access.Session)
	return session
}

// Login lets requests of signed-in users pass. With open, every request from this machine passes as the admin.
func Login(users *access.Access, open bool) echo.MiddlewareFunc {
	if open {
		return ownHostOnly
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			session, err := SessionOf(users, c)
			if err == nil {
				c.Set(sessionKey, session)
				actAs(c, session.Actor(c.RealIP()))
				return next(c)
			}
			if !errors.Is(err, postgres.ErrNotFound) {
				return err
			}
			if reads(c.Request()) && !refreshes(c.Request()) {
				return c.Redirect(http.StatusSeeOther, signInPath(c.Request().URL.RequestURI()))
			}
			return echo.ErrUnauthorized
		}
	}
}

// SessionOf is the session whose token the browser sends; ErrNotFound if there is none or it has ended. Automatic
// requests of a page do not extend it.
func SessionOf(users *access.Access, c echo.Context) (*access.Session, error) {
	cookie, err := c.Cookie(SessionCookie)
	if err != nil || cookie.Value == "" {
		return nil, postgres.ErrNotFound
	}
	ctx, cancel := Context(c)
	defer cancel()
	if refreshes(c.Request()) {
		return users.WatchedSession(ctx, cookie.Value)
	}
	return users.SessionOf(ctx, cookie.Value)
}

func reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// refreshes reports that a page refreshes itself or reads the tail. Forms that update their page while a user types
// send POST instead.
func refreshes(r *http.Request) bool {
	return reads(r) &&
		(r.Header.Get("Hx-Request") != "" || strings.Contains(r.Header.Get(echo.HeaderAccept), "text/event-stream"))
}

func actAs(c echo.Context, actor access.Actor) {
	c.SetRequest(c.Request().WithContext(access.WithActor(c.Request().Context(), actor)))
}

// Requires lets only users pass whose role allows it.
func Requires(role access.Role) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			has := access.ActorOf(c.Request().Context()).Role
			if has.Allows(role) {
				return next(c)
			}
			return &RejectionError{
				http.StatusForbidden, "This requires the role " + string(role) + "; yours is " + string(has) +
					". Nothing was changed. An admin can change your role under Users.",
			}
		}
	}
}

// RequiresQuery lets only users pass who may run SQL queries.
func RequiresQuery(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if access.ActorOf(c.Request().Context()).Query {
			return next(c)
		}
		return &RejectionError{
			http.StatusForbidden, "You may not run queries. Nothing was changed. An admin can allow it under Users.",
		}
	}
}

// ownHostOnly protects a dashboard without sign-in from DNS rebinding: a page whose name was pointed at 127.0.0.1 is
// the same site for the browser, but sends its own name as the host.
func ownHostOnly(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if !endpointconf.IsLocalHost(c.Request().Host) {
			return echo.NewHTTPError(http.StatusMisdirectedRequest)
		}
		actAs(c, access.Actor{Name: AdminName, Address: c.RealIP(), Role: access.RoleAdmin, Query: true})
		return next(c)
	}
}

// signInPath is the address of the sign-in page that continues at to.
func signInPath(to string) string {
	if to == "/ui/" || to == "" {
		return "/ui/sign-in"
	}
	return "/ui/sign-in?to=" + url.QueryEscape(to)
}
