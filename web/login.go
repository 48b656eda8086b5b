package web

import (
	"errors"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"postrider/access"
	"postrider/policy"
	"postrider/postgres"
)

// sessionCookie holds a session's token. Its prefix has browsers take it only over HTTPS (or from localhost), for this
// very host and for every path: nothing that runs on a neighbouring name can set it.
const sessionCookie = "__Host-postrider"

// sessionKey is where the middleware leaves the session for handlers.
const sessionKey = "postrider.session"

// login lets a request through in the name of who has signed in.
func (p *pages) login(open bool) echo.MiddlewareFunc {
	if open {
		return ownHostOnly
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			session, err := p.sessionOf(c)
			switch {
			case errors.Is(err, postgres.ErrNotFound):
				return askToSignIn(c)
			case err != nil:
				return err
			}
			c.Set(sessionKey, session)
			actAs(c, session.Actor(c.RealIP()))
			return next(c)
		}
	}
}

// sessionOf is the session whose token the browser holds. ErrNotFound: it has none, or one that is over. Only a person
// keeps it alive.
func (p *pages) sessionOf(c echo.Context) (*access.Session, error) {
	cookie, err := c.Cookie(sessionCookie)
	if err != nil || cookie.Value == "" {
		return nil, postgres.ErrNotFound
	}
	ctx, cancel := pageContext(c)
	defer cancel()
	if asksByItself(c.Request()) {
		return p.parts.Access.WatchedSession(ctx, cookie.Value)
	}
	return p.parts.Access.SessionOf(ctx, cookie.Value)
}

// asksByItself reports that a page refreshes itself, or follows the tail, with nobody who need be looking. Forms that
// are typed in ask by POST.
func asksByItself(r *http.Request) bool {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	return reads &&
		(r.Header.Get("Hx-Request") != "" || strings.Contains(r.Header.Get(echo.HeaderAccept), "text/event-stream"))
}

// askToSignIn leads a person to the sign-in page and back. What is no person looking at a page hears 401.
func askToSignIn(c echo.Context) error {
	r := c.Request()
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	if reads && !asksByItself(r) {
		return c.Redirect(http.StatusSeeOther, signInPath(r.URL.RequestURI()))
	}
	return echo.ErrUnauthorized
}

func actAs(c echo.Context, who access.Actor) {
	c.SetRequest(c.Request().WithContext(access.WithActor(c.Request().Context(), who)))
}

// roleError refuses who is in, and may not.
type roleError struct{ needed, has access.Role }

// Error tells both roles.
func (e *roleError) Error() string {
	return "it needs the role " + string(e.needed) + ", and yours is " + string(e.has)
}

// requires lets only people through whose role allows it.
func requires(role access.Role) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if has := access.ActorOf(c.Request().Context()).Role; !has.Allows(role) {
				return &roleError{needed: role, has: has}
			}
			return next(c)
		}
	}
}

// ownHostOnly guards a dashboard without a login. The loopback interface keeps other machines out, but not a page in
// this machine's browser whose own name was pointed at 127.0.0.1 (DNS rebinding): to the browser that is one site. Such
// a request names that site as its host; an address cannot be rebound.
func ownHostOnly(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if !policy.IsLocalHost(c.Request().Host) {
			return echo.NewHTTPError(http.StatusMisdirectedRequest)
		}
		actAs(c, access.Actor{Name: adminName, Address: c.RealIP(), Role: access.RoleAdmin})
		return next(c)
	}
}
