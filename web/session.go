package web

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/access"
	"postrider/policy"
	"postrider/postgres"
)

const (
	// sessionCookie has the token of a session. Because of its prefix, browsers accept it only over HTTPS or from
	// localhost, for this host and every path: a neighboring host cannot set it.
	sessionCookie = "__Host-postrider"
	// triedCookie says that a user has just signed in: if the sign-in page gets it without the session's cookie, the
	// browser has rejected that one.
	triedCookie = "postrider-tried"
	// sessionLife is as long as a session can last. Package access decides when it ends.
	sessionLife = 7 * 24 * time.Hour
	// sessionKey is where the middleware stores the session for handlers.
	sessionKey = "postrider.session"
	// adminName is the admin token, and the user of a dashboard without a login, in the audit.
	adminName = "admin"
)

// setSession stores the token of a session in the browser; "" removes it.
func setSession(c echo.Context, token string) {
	session := http.Cookie{
		Name: sessionCookie, Value: token, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		MaxAge: int(sessionLife.Seconds()),
	}
	tried := http.Cookie{ //nolint:gosec // it is for pages without HTTPS, and holds no secret
		Name: triedCookie, Value: "1", Path: "/ui/sign-in", HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: 10,
	}
	if token == "" {
		tried.Value, session.MaxAge, tried.MaxAge = "", -1, -1
	}
	c.SetCookie(&session)
	c.SetCookie(&tried)
}

// sessionIn is the session of the user who has signed in; nil on a dashboard without a login.
func sessionIn(c echo.Context) *access.Session {
	session, _ := c.Get(sessionKey).(*access.Session)
	return session
}

// login lets a request pass as the user who has signed in.
func (p *pages) login(open bool) echo.MiddlewareFunc {
	if open {
		return ownHostOnly
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			session, err := p.sessionOf(c)
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

// sessionOf is the session whose token the browser sends; ErrNotFound if there is none, or it has ended. Requests that
// a page sends by itself do not extend it.
func (p *pages) sessionOf(c echo.Context) (*access.Session, error) {
	cookie, err := c.Cookie(sessionCookie)
	if err != nil || cookie.Value == "" {
		return nil, postgres.ErrNotFound
	}
	ctx, cancel := pageContext(c)
	defer cancel()
	if refreshes(c.Request()) {
		return p.parts.Access.WatchedSession(ctx, cookie.Value)
	}
	return p.parts.Access.SessionOf(ctx, cookie.Value)
}

func reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// refreshes reports that a page refreshes itself or follows the tail. Forms that refresh parts of their page while a
// user types send POST.
func refreshes(r *http.Request) bool {
	return reads(r) &&
		(r.Header.Get("Hx-Request") != "" || strings.Contains(r.Header.Get(echo.HeaderAccept), "text/event-stream"))
}

func actAs(c echo.Context, who access.Actor) {
	c.SetRequest(c.Request().WithContext(access.WithActor(c.Request().Context(), who)))
}

// requires lets only users pass whose role allows it.
func requires(role access.Role) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			has := access.ActorOf(c.Request().Context()).Role
			if has.Allows(role) {
				return next(c)
			}
			return &refusedError{http.StatusForbidden, "It needs the role " + string(role) + ", and yours is " + string(has) +
				". Nothing was changed. An admin can give you the role under Users."}
		}
	}
}

// ownHostOnly protects a dashboard without a login from DNS rebinding: a page in this machine's browser whose name was
// pointed at 127.0.0.1 is one site with it, but sends its own name as the host. An address cannot be rebound.
func ownHostOnly(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if !policy.IsLocalHost(c.Request().Host) {
			return echo.NewHTTPError(http.StatusMisdirectedRequest)
		}
		actAs(c, access.Actor{Name: adminName, Address: c.RealIP(), Role: access.RoleAdmin})
		return next(c)
	}
}
