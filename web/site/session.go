package site

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/access"
	"postrider/policy"
	"postrider/postgres"
)

const (
	// SessionCookie has the token of a session. Because of its prefix, browsers accept it only over HTTPS or from
	// localhost, for this host and every path: a neighboring host cannot set it.
	SessionCookie = "__Host-postrider"
	// TriedCookie says that a user has just signed in: if the sign-in page gets it without the session's cookie, the
	// browser has rejected that one.
	TriedCookie = "postrider-tried"
	// sessionLife is as long as a session can last. Package access decides when it ends.
	sessionLife = 7 * 24 * time.Hour
	// sessionKey is where the middleware stores the session for handlers.
	sessionKey = "postrider.session"
	// AdminName is the admin token, and the user of a dashboard without a login, in the audit.
	AdminName = "admin"
)

// SetSession stores the token of a session in the browser; "" removes it.
func SetSession(c echo.Context, token string) {
	session := &http.Cookie{
		Name: SessionCookie, Value: token, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		MaxAge: int(sessionLife.Seconds()),
	}
	tried := &http.Cookie{ //nolint:gosec // it is for pages without HTTPS, and holds no secret
		Name: TriedCookie, Value: "1", Path: "/ui/sign-in", HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: 10,
	}
	if token == "" {
		tried.Value, session.MaxAge, tried.MaxAge = "", -1, -1
	}
	c.SetCookie(session)
	c.SetCookie(tried)
}

// SessionIn is the session of the user who has signed in; nil on a dashboard without a login.
func SessionIn(c echo.Context) *access.Session {
	session, _ := c.Get(sessionKey).(*access.Session)
	return session
}

// Login lets a request pass as the user who has signed in; with open, as the admin.
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
				return c.Redirect(http.StatusSeeOther, SignInPath(c.Request().URL.RequestURI()))
			}
			return echo.ErrUnauthorized
		}
	}
}

// SessionOf is the session whose token the browser sends; ErrNotFound if there is none, or it has ended. Requests that
// a page sends by itself do not extend it.
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

// refreshes reports that a page refreshes itself or follows the tail. Forms that refresh parts of their page while a
// user types send POST.
func refreshes(r *http.Request) bool {
	return reads(r) &&
		(r.Header.Get("Hx-Request") != "" || strings.Contains(r.Header.Get(echo.HeaderAccept), "text/event-stream"))
}

func actAs(c echo.Context, who access.Actor) {
	c.SetRequest(c.Request().WithContext(access.WithActor(c.Request().Context(), who)))
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
				http.StatusForbidden, "It needs the role " + string(role) + ", and yours is " + string(has) +
					". Nothing was changed. An admin can give you the role under Users.",
			}
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
		actAs(c, access.Actor{Name: AdminName, Address: c.RealIP(), Role: access.RoleAdmin})
		return next(c)
	}
}

// SignInPath is the sign-in page that leads to a page.
func SignInPath(to string) string {
	if to == "/ui/" || to == "" {
		return "/ui/sign-in"
	}
	return "/ui/sign-in?to=" + url.QueryEscape(to)
}
