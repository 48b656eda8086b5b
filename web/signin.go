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

	"postrider/internal/access"
	"postrider/internal/postgres"
	"postrider/web/site"
)

type signInView struct {
	To    string // the page to continue at
	Name  string // as entered
	First bool   // no user exists: the admin token creates the first admin
	// NoCookie reports that the browser did not store the session's cookie after a sign-in.
	NoCookie bool
	Least    int // characters of a password
}

// ownPage is where to continue after sign-in: always a page of this dashboard.
func ownPage(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(u.Path, "/ui/") || strings.Contains(u.Path, "..") ||
		strings.ContainsAny(to, "\\\r\n") {
		return "/ui/"
	}
	return u.RequestURI()
}

func (p *pages) signInPage(ctx context.Context, c echo.Context) error {
	if session, err := site.SessionOf(p.Parts.Access, c); err == nil && session != nil {
		return c.Redirect(http.StatusSeeOther, ownPage(c.QueryParam("to")))
	}
	has, err := p.Parts.Access.HasUsers(ctx)
	if err != nil {
		return err
	}
	_, tried := c.Cookie(site.TriedCookie)
	title := "Sign in"
	if !has {
		title = "Create first admin"
	}
	return p.Show(c, "sign-in", title, false, signInView{
		To: c.FormValue("to"), Name: c.FormValue("name"), First: !has, NoCookie: tried == nil, Least: access.MinPassword,
	})
}

// signIn begins a session. It ends the browser's previous one, whose token a previous user may know.
func (p *pages) signIn(ctx context.Context, c echo.Context) (href string, err error) {
	token, _, err := p.Parts.Access.SignIn(ctx, c.FormValue("name"), c.FormValue("password"),
		access.SignInFrom{Address: c.RealIP(), UserAgent: c.Request().UserAgent()})
	if errors.Is(err, access.ErrWrongCredentials) {
		return "", &site.RejectionError{Status: http.StatusUnauthorized, Text: "The name or the password is wrong."}
	}
	if err != nil {
		return "", err
	}
	if cookie, err := c.Cookie(site.SessionCookie); err == nil && cookie.Value != "" {
		_ = p.Parts.Access.SignOut(ctx, cookie.Value) // otherwise it expires
	}
	site.SetSession(c, token)
	return ownPage(c.FormValue("to")), nil
}

func (p *pages) signOut(ctx context.Context, c echo.Context) (href string, err error) {
	if cookie, err := c.Cookie(site.SessionCookie); err == nil {
		if err := p.Parts.Access.SignOut(ctx, cookie.Value); err != nil && !errors.Is(err, postgres.ErrNotFound) {
			return "", err
		}
	}
	site.SetSession(c, "")
	return "/ui/sign-in?done=signed-out", nil
}

// firstAdmin creates the first admin and signs in.
func (p *pages) firstAdmin(ctx context.Context, c echo.Context) (href string, err error) {
	if err := p.checkAdminToken(ctx, c.FormValue("token")); err != nil {
		return "", err
	}
	password, err := newPassword(c)
	if err != nil {
		return "", err
	}
	admin := access.WithActor(ctx, access.Actor{Name: site.AdminName, Address: c.RealIP(), Role: access.RoleAdmin})
	if err := p.Parts.Access.CreateFirstAdmin(admin, c.FormValue("name"), password); err != nil {
		return "", err
	}
	return p.signIn(ctx, c)
}

// newPassword is the password that a form repeats.
func newPassword(c echo.Context) (string, error) {
	if c.FormValue("password") != c.FormValue("again") {
		return "", site.Rejected(http.StatusBadRequest, "the two passwords differ")
	}
	return c.FormValue("password"), nil
}

// The response to a wrong admin token is delayed by wrongTokenDelay. Beyond wrongTokensAtOnce, others get 429 at once.
const (
	wrongTokenDelay   = time.Second
	wrongTokensAtOnce = 10
)

// checkAdminToken compares hashes, so that its duration does not depend on the token's length or the correct part of a
// guess. Wrong tokens of other clients never delay the right one: with at least 32 characters it cannot be guessed.
func (p *pages) checkAdminToken(ctx context.Context, guess string) error {
	want, got := sha256.Sum256([]byte(p.AdminToken)), sha256.Sum256([]byte(guess))
	if subtle.ConstantTimeCompare(want[:], got[:]) == 1 {
		return nil
	}
	select {
	case p.wrongTokens <- struct{}{}:
		defer func() { <-p.wrongTokens }()
	default:
		return &site.RejectionError{
			Status: http.StatusTooManyRequests, Text: "Too many wrong tokens. Try again in a few seconds.",
		}
	}
	select {
	case <-time.After(wrongTokenDelay):
	case <-ctx.Done():
	}
	return &site.RejectionError{Status: http.StatusUnauthorized, Text: "The admin token is wrong. Use " +
		"POSTRIDER_ADMIN_TOKEN, or the token that the server printed at its first start."}
}
