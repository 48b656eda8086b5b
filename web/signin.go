package web

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/access"
	"postrider/postgres"
	"postrider/web/display"
)

// signInView is what sign-in.html shows.
type signInView struct {
	To    string // the page that was asked for
	Name  string // as it was typed
	First bool   // nobody can sign in yet: the admin token makes the first admin
	// NoCookie: somebody has signed in a moment ago, and the browser has kept nothing of it.
	NoCookie bool
	Least    int // characters of a password
}

func signInPath(to string) string {
	if to == "/ui/" || to == "" {
		return "/ui/sign-in"
	}
	return "/ui/sign-in?to=" + url.QueryEscape(to)
}

// ownPage is where to go after signing in: a page of this dashboard, whatever the address says.
func ownPage(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(u.Path, "/ui/") || strings.Contains(u.Path, "..") ||
		strings.ContainsAny(to, "\\\r\n") {
		return "/ui/"
	}
	return u.RequestURI()
}

func (p *pages) signInPage(c echo.Context) error {
	ctx, cancel := pageContext(c)
	defer cancel()
	if session, err := p.sessionOf(c); err == nil && session != nil {
		return c.Redirect(http.StatusSeeOther, ownPage(c.QueryParam("to")))
	}
	there, err := p.parts.Access.HasUsers(ctx)
	if err != nil {
		return err
	}
	_, tried := c.Cookie(triedCookie)
	view := signInView{
		To: c.FormValue("to"), Name: c.FormValue("name"), First: !there, NoCookie: tried == nil, Least: access.MinPassword,
	}
	title := "Sign in"
	if view.First {
		title = "Make the first admin"
	}
	return p.show(c, "sign-in", title, false, view)
}

// signIn begins a session. The one that the browser had before ends: its token may be known to who sat there before.
func (p *pages) signIn(c echo.Context) error {
	ctx, cancel := pageContext(c)
	defer cancel()
	token, _, err := p.parts.Access.SignIn(ctx, c.FormValue("name"), c.FormValue("password"),
		access.SignInFrom{Address: c.RealIP(), UserAgent: c.Request().UserAgent()})
	if err != nil {
		return p.refuseSignIn(c, err)
	}
	if cookie, err := c.Cookie(sessionCookie); err == nil && cookie.Value != "" {
		_ = p.parts.Access.SignOut(ctx, cookie.Value) // it ends by itself
	}
	setSession(c, token)
	return c.Redirect(http.StatusSeeOther, ownPage(c.FormValue("to")))
}

func (p *pages) refuseSignIn(c echo.Context, err error) error {
	said := throttled(err)
	switch {
	case said != nil:
	case errors.Is(err, access.ErrWrongCredentials):
		said = &refusedError{status: http.StatusUnauthorized, text: "The name or the password is wrong."}
	default:
		return err
	}
	c.Set(refusalKey, said)
	return p.signInPage(c)
}

// throttled returns nil if the error is another one.
func throttled(err error) *refusedError {
	var locked *access.LockedError
	if !errors.As(err, &locked) {
		return nil
	}
	text := "Too many wrong passwords. Try again in " + display.Count(locked.Wait) + "."
	return &refusedError{status: http.StatusTooManyRequests, text: text}
}

// triedCookie tells the sign-in page that somebody has just signed in: where the session's cookie is missing then, the
// browser has refused it.
const triedCookie = "postrider-tried"

// cookieLife is as long as a session can be; when it really ends, the store says.
const cookieLife = 7 * 24 * time.Hour

func setSession(c echo.Context, token string) {
	c.SetCookie(&http.Cookie{
		Name: sessionCookie, Value: token, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		MaxAge: int(cookieLife.Seconds()),
	})
	c.SetCookie(&http.Cookie{ //nolint:gosec // it is for pages without HTTPS, and says nothing
		Name: triedCookie, Value: "1", Path: "/ui/sign-in", HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: 10,
	})
}

func dropSession(c echo.Context) {
	c.SetCookie(&http.Cookie{
		Name: sessionCookie, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: -1,
	})
	c.SetCookie(&http.Cookie{ //nolint:gosec // as it was set
		Name: triedCookie, Path: "/ui/sign-in", HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: -1,
	})
}

func (p *pages) signOut(c echo.Context) error {
	ctx, cancel := pageContext(c)
	defer cancel()
	if cookie, err := c.Cookie(sessionCookie); err == nil {
		if err := p.parts.Access.SignOut(ctx, cookie.Value); err != nil && !errors.Is(err, postgres.ErrNotFound) {
			return err
		}
	}
	dropSession(c)
	return c.Redirect(http.StatusSeeOther, "/ui/sign-in?done=signed-out")
}

// bootstrap guards the form that makes the first admin: whoever holds the admin token may, once. The right token is
// accepted at once, however many wrong ones others send: it has 32 characters or more, so nothing is gained by
// guessing.
type bootstrap struct {
	want    [sha256.Size]byte
	waiting chan struct{} // holds the wrong tokens whose response is delayed
}

// wrongTokenDelay is how long the response to a wrong admin token takes; beyond wrongTokensAtOnce of them, the others
// are answered 429 at once.
const (
	wrongTokenDelay   = time.Second
	wrongTokensAtOnce = 10
)

func newBootstrap(token string) *bootstrap {
	return &bootstrap{want: sha256.Sum256([]byte(token)), waiting: make(chan struct{}, wrongTokensAtOnce)}
}

// admits compares hashes, which have one length: the time it takes tells neither how much of a guess is right nor how
// long the token is.
func (b *bootstrap) admits(ctx context.Context, guess string) error {
	got := sha256.Sum256([]byte(guess))
	if subtle.ConstantTimeCompare(b.want[:], got[:]) == 1 {
		return nil
	}
	select {
	case b.waiting <- struct{}{}:
		defer func() { <-b.waiting }()
	default:
		return &refusedError{status: http.StatusTooManyRequests, text: "Too many wrong tokens. Try again in a few seconds."}
	}
	select {
	case <-time.After(wrongTokenDelay):
	case <-ctx.Done():
	}
	return &refusedError{status: http.StatusUnauthorized, text: "That is not the admin token. It is " +
		"POSTRIDER_ADMIN_TOKEN, or what the server printed once when it started without one."}
}

// firstAdmin makes the first admin, and signs in.
func (p *pages) firstAdmin(c echo.Context) error {
	ctx, cancel := pageContext(c)
	defer cancel()
	err := p.bootstrap.admits(ctx, c.FormValue("token"))
	if err == nil && c.FormValue("password") != c.FormValue("again") {
		err = wrongForm("the two passwords differ.")
	}
	if err == nil {
		err = p.parts.Access.CreateFirstAdmin(
			access.WithActor(ctx, access.Actor{Name: adminName, Address: c.RealIP(), Role: access.RoleAdmin}),
			c.FormValue("name"), c.FormValue("password"))
	}
	if said := p.accountRefusal(err); said != nil {
		c.Set(refusalKey, said)
		return p.signInPage(c)
	}
	if err != nil {
		return err
	}
	return p.signIn(c)
}

// accountRefusal words what the store refuses about users and keys; nil for what is no refusal.
func (p *pages) accountRefusal(err error) *refusedError {
	if said := throttled(err); said != nil {
		return said
	}
	switch {
	case errors.Is(err, access.ErrNotFirst):
		return &refusedError{
			status: http.StatusConflict, text: "There is an admin already: sign in, or ask one to let you in.",
		}
	case errors.Is(err, access.ErrLastAdmin):
		return &refusedError{status: http.StatusConflict, text: "Nothing was done: this is the last admin who can sign in. " +
			"Make another one first."}
	case errors.Is(err, access.ErrWrongCredentials):
		return &refusedError{status: http.StatusForbidden, text: "Nothing was done: that is not your password."}
	}
	return refusalOf(err)
}

// accountDeed is act for pages about users and keys.
func (p *pages) accountDeed(
	do func(ctx context.Context, c echo.Context) (href string, err error), page echo.HandlerFunc,
) echo.HandlerFunc {
	return p.act(func(ctx context.Context, c echo.Context) (string, error) {
		href, err := do(ctx, c)
		if said := p.accountRefusal(err); said != nil {
			return "", said
		}
		return href, err
	}, page)
}
