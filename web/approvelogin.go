package web

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/access"
	"postrider/policy"
	"postrider/postgres"
)

// loginView is what login.html shows.
type loginView struct {
	Code    string        // as it was entered, if no login waits under it
	Login   *access.Login // nil: the page asks for the code
	Session *access.Session
	// Gets is the role that the key gets: the lower of the one asked for and the user's.
	Gets access.Role
	// Done is "login-approved" or "login-denied" after the decision.
	Done string
}

// loginPage shows a login of the command line to the user who is to approve it.
func (p *pages) loginPage(c echo.Context) error {
	session, ok := c.Get(sessionKey).(*access.Session)
	if !ok {
		return p.show(c, "login", "Approve a login", false, loginView{})
	}
	view := loginView{Session: session, Code: c.FormValue("code")}
	if c.Request().Method != http.MethodPost {
		view.Done = c.QueryParam("done")
	}
	if view.Code != "" {
		ctx, cancel := pageContext(c)
		defer cancel()
		login, err := p.loginOf(ctx, session.User, view.Code)
		if said := loginRefusal(err); said != nil {
			c.Set(refusalKey, said)
		} else if err != nil {
			return err
		}
		view.Login = login
	}
	if view.Login != nil {
		view.Gets = session.Role
		if asked := view.Login.Role; asked != "" && session.Role.Allows(asked) {
			view.Gets = asked
		}
	}
	return p.show(c, "login", "Approve a login", false, view)
}

func loginRefusal(err error) *refusedError {
	if errors.Is(err, postgres.ErrNotFound) {
		text := "No login waits under this code. It may have expired, or it was decided already: run postrider login again."
		return &refusedError{status: http.StatusNotFound, text: text}
	}
	return refusalOf(err)
}

// loginOf finds a login, and bounds the wrong codes of a user.
func (p *pages) loginOf(ctx context.Context, user, code string) (*access.Login, error) {
	if p.codes.exhausted(user, p.now()) {
		return nil, &refusedError{status: http.StatusTooManyRequests, text: "Too many wrong codes. Try again in a minute."}
	}
	login, err := p.parts.Access.Login(ctx, code)
	if errors.Is(err, postgres.ErrNotFound) {
		p.codes.wrong(user, p.now())
	}
	return login, err
}

// decideLogin approves or denies the login whose code the form has.
func (p *pages) decideLogin(done string, decide func(ctx context.Context, code, user string) error) echo.HandlerFunc {
	return p.accountDeed(func(ctx context.Context, c echo.Context) (href string, err error) {
		session, ok := c.Get(sessionKey).(*access.Session)
		if !ok {
			return "", errNoSession
		}
		login, err := p.loginOf(ctx, session.User, c.FormValue("code"))
		if err == nil {
			err = decide(ctx, login.UserCode, session.User)
		}
		if said := loginRefusal(err); said != nil {
			return "", said
		}
		return "/ui/login?done=" + done, err
	}, p.loginPage)
}

func (p *pages) approveLogin(ctx context.Context, code, user string) error {
	_, err := p.parts.Access.ApproveLogin(ctx, code, user)
	return err
}

func (p *pages) denyLogin(ctx context.Context, code, _ string) error {
	return p.parts.Access.DenyLogin(ctx, code)
}

// wrongCodes bounds how many codes of logins a user may try on this node.
type wrongCodes struct {
	mu    sync.Mutex
	users *policy.Buckets[string]
}

func newWrongCodes() *wrongCodes {
	return &wrongCodes{users: policy.NewBuckets[string](policy.Bucket{Burst: 10, Every: 10 * time.Second})}
}

func (w *wrongCodes) exhausted(user string, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.users.Wait(user, now) > 0
}

func (w *wrongCodes) wrong(user string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.users.Take(user, now)
}

// createPersonalKey answers with the page itself: a redirect would have to carry the key.
func (p *pages) createPersonalKey(c echo.Context) error {
	ctx, cancel := pageContext(c)
	defer cancel()
	session, ok := c.Get(sessionKey).(*access.Session)
	if !ok {
		c.Set(refusalKey, errNoSession)
		return p.account(c)
	}
	spec := access.PersonalKeySpec{Machine: c.FormValue("machine"), Role: access.Role(c.FormValue("role"))}
	key, made, err := p.parts.Access.CreatePersonalKey(ctx, session.User, spec)
	if err == nil {
		return p.showAccount(c, made, key)
	}
	if said := p.accountRefusal(err); said != nil {
		c.Set(refusalKey, said)
		return p.account(c)
	}
	return err
}

func (p *pages) revokePersonalKey(ctx context.Context, c echo.Context) (href string, err error) {
	session, ok := c.Get(sessionKey).(*access.Session)
	if !ok {
		return "", errNoSession
	}
	_, err = p.parts.Access.RevokePersonalKey(ctx, session.User, c.Param("key"))
	return "/ui/account?done=key-revoked", err
}
