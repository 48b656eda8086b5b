package web

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/access"
	"postrider/policy"
	"postrider/postgres"
	"postrider/web/site"
)

// newKey is an API key that was just created. Its secret is shown once, on the page of the form that created it: a
// redirect would have to carry it.
type newKey struct {
	*access.APIKey
	Secret string
}

// keyInContext is where an action stores the key that it has created.
const keyInContext = "postrider.key"

// keyCreated is the result of an action that creates a key.
func keyCreated(c echo.Context, secret string, key *access.APIKey, err error) (href string, _ error) {
	if err == nil {
		c.Set(keyInContext, &newKey{key, secret})
	}
	return "", err
}

// accountView is what account.html shows.
type accountView struct {
	Session *access.Session // nil on a dashboard without a login
	Least   int
	Keys    []access.APIKey // personal keys that work
	Roles   []access.Role   // those that a personal key may have
	Made    *newKey
	Form    url.Values // as it was typed
}

func (p *pages) account(ctx context.Context, c echo.Context) (err error) {
	view := accountView{Session: site.SessionIn(c), Least: access.MinPassword, Form: site.Typed(c)}
	view.Made, _ = c.Get(keyInContext).(*newKey)
	if view.Session != nil {
		if view.Keys, err = p.parts.Access.PersonalKeys(ctx, view.Session.User); err != nil {
			return err
		}
		for _, role := range []access.Role{access.RoleAdmin, access.RoleOperator, access.RoleViewer} {
			if view.Session.Role.Allows(role) {
				view.Roles = append(view.Roles, role)
			}
		}
	}
	return p.Show(c, "account", "Your account", false, view)
}

// own is an action on the account of the user who has signed in.
func (p *pages) own(
	do func(ctx context.Context, c echo.Context, user string) (href string, err error), show site.Page,
) echo.HandlerFunc {
	return site.Act(func(ctx context.Context, c echo.Context) (string, error) {
		if session := site.SessionIn(c); session != nil {
			return do(ctx, c, session.User)
		}
		return "", &site.RejectionError{Status: http.StatusConflict, Text: "Nothing was done: no user signs in here."}
	}, show)
}

func (p *pages) changePassword(ctx context.Context, c echo.Context, user string) (href string, err error) {
	password, err := newPassword(c)
	if err != nil {
		return "", err
	}
	if err := p.parts.Access.ChangePassword(ctx, user, c.FormValue("old"), password); err != nil {
		return "", err
	}
	site.SetSession(c, "") // all sessions have ended
	return "/ui/sign-in?done=password-changed", nil
}

func (p *pages) signOutEverywhere(ctx context.Context, c echo.Context, user string) (href string, err error) {
	site.SetSession(c, "")
	_, err = p.parts.Access.EndSessions(ctx, user)
	return "/ui/sign-in?done=signed-out", err
}

func (p *pages) createPersonalKey(ctx context.Context, c echo.Context, user string) (href string, err error) {
	spec := access.PersonalKeySpec{Machine: c.FormValue("machine"), Role: access.Role(c.FormValue("role"))}
	secret, key, err := p.parts.Access.CreatePersonalKey(ctx, user, spec)
	return keyCreated(c, secret, key, err)
}

func (p *pages) revokePersonalKey(ctx context.Context, c echo.Context, user string) (href string, err error) {
	_, err = p.parts.Access.RevokePersonalKey(ctx, user, c.Param("key"))
	return "/ui/account?done=key-revoked", err
}

// loginView is what login.html shows.
type loginView struct {
	Code    string        // as it was entered, if no login waits under it
	Login   *access.Login // nil: the page requests the code
	Session *access.Session
	// Gets is the role of the key: the requested one, but at most the user's.
	Gets access.Role
	// Done is "login-approved" or "login-denied" after the decision.
	Done string
}

// loginPage shows a login of the command line to the user who is to approve it.
func (p *pages) loginPage(ctx context.Context, c echo.Context) (err error) {
	view := loginView{Session: site.SessionIn(c)}
	if view.Session == nil {
		return p.Show(c, "login", "Approve a login", false, view)
	}
	if c.Request().Method != http.MethodPost {
		view.Done = c.QueryParam("done")
	}
	if view.Code = c.FormValue("code"); view.Code != "" {
		view.Login, err = p.loginOf(ctx, view.Session.User, view.Code)
		if said := site.RejectionOf(err); said != nil {
			site.Reject(c, said)
		} else if err != nil {
			return err
		}
	}
	if view.Login != nil {
		view.Gets = view.Session.Role
		if requested := view.Login.Role; requested != "" && view.Session.Role.Allows(requested) {
			view.Gets = requested
		}
	}
	return p.Show(c, "login", "Approve a login", false, view)
}

// loginOf finds a login, and limits the wrong codes of a user.
func (p *pages) loginOf(ctx context.Context, user, code string) (*access.Login, error) {
	if p.codes.exhausted(user, p.Now()) {
		return nil, &site.RejectionError{
			Status: http.StatusTooManyRequests, Text: "Too many wrong codes. Try again in a minute.",
		}
	}
	login, err := p.parts.Access.Login(ctx, code)
	if errors.Is(err, postgres.ErrNotFound) {
		p.codes.wrong(user, p.Now())
		return nil, &site.RejectionError{
			Status: http.StatusNotFound, Text: "No login waits under this code. It may have expired, or it was decided " +
				"already: run postrider login again.",
		}
	}
	return login, err
}

func (p *pages) approveLogin(ctx context.Context, c echo.Context, user string) (href string, err error) {
	login, err := p.loginOf(ctx, user, c.FormValue("code"))
	if err == nil {
		_, err = p.parts.Access.ApproveLogin(ctx, login.UserCode, user)
	}
	return "/ui/login?done=login-approved", err
}

func (p *pages) denyLogin(ctx context.Context, c echo.Context, user string) (href string, err error) {
	login, err := p.loginOf(ctx, user, c.FormValue("code"))
	if err == nil {
		err = p.parts.Access.DenyLogin(ctx, login.UserCode)
	}
	return "/ui/login?done=login-denied", err
}

// wrongCodes limits how many codes of logins a user may try on this node.
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

// usersView is what users.html shows.
type usersView struct {
	site.List[access.User]
	Me    string
	Least int
	Form  url.Values // as it was typed
}

func (p *pages) users(ctx context.Context, c echo.Context) error {
	list, err := site.ForwardList(ctx, c, "user", p.parts.Access.Users, func(u *access.User) string { return u.Name })
	if err != nil {
		return err
	}
	view := usersView{List: list, Least: access.MinPassword, Form: site.Typed(c)}
	if session := site.SessionIn(c); session != nil {
		view.Me = session.User
	}
	return p.Show(c, "users", "Users", false, view)
}

func (p *pages) addUser(ctx context.Context, c echo.Context) (href string, err error) {
	name, password := c.FormValue("name"), c.FormValue("password")
	switch _, err := p.parts.Access.User(ctx, name); {
	case err == nil: // PutUser would change this user
		return "", &site.RejectionError{
			Status: http.StatusConflict, Text: "Nothing was done: there is a user of this name already.",
		}
	case !errors.Is(err, postgres.ErrNotFound):
		return "", err
	}
	_, err = p.parts.Access.PutUser(ctx, name,
		access.UserSpec{Role: access.Role(c.FormValue("role")), Password: &password})
	return "/ui/users?done=user-added", err
}

func (p *pages) changeUser(ctx context.Context, c echo.Context) (href string, err error) {
	name := c.Param("user")
	if _, err := p.parts.Access.User(ctx, name); err != nil {
		return "", err
	}
	change := access.UserSpec{} // settings without a value stay as they are
	switch c.FormValue("change") {
	case "role":
		change.Role = access.Role(c.FormValue("role"))
	case "password":
		change.Password = new(c.FormValue("password"))
	case "disable", "enable":
		change.Disabled = new(c.FormValue("change") == "disable")
	case "sessions":
		_, err = p.parts.Access.EndSessions(ctx, name)
		return "/ui/users?done=sessions-ended", err
	default:
		return "", site.WrongForm("the form has no change.")
	}
	_, err = p.parts.Access.PutUser(ctx, name, change)
	return "/ui/users?done=user-changed", err
}

func (p *pages) removeUser(ctx context.Context, c echo.Context) (href string, err error) {
	return "/ui/users?done=user-removed", p.parts.Access.DeleteUser(ctx, c.Param("user"))
}

// apiKeysView is what api-keys.html shows.
type apiKeysView struct {
	site.List[access.APIKey]
	Made *newKey
	Form url.Values // as it was typed
}

func (p *pages) apiKeys(ctx context.Context, c echo.Context) error {
	list, err := site.ForwardList(ctx, c, "API key", p.parts.Access.APIKeys,
		func(k *access.APIKey) string { return k.Name })
	if err != nil {
		return err
	}
	view := apiKeysView{List: list, Form: site.Typed(c)}
	view.Made, _ = c.Get(keyInContext).(*newKey)
	return p.Show(c, "api-keys", "API keys", false, view)
}

func (p *pages) createAPIKey(ctx context.Context, c echo.Context) (href string, err error) {
	spec := access.APIKeySpec{
		Name: c.FormValue("name"), Scope: access.Scope(c.FormValue("scope")), Topic: strings.TrimSpace(c.FormValue("topic")),
	}
	if text := strings.TrimSpace(c.FormValue("days")); text != "" {
		days, err := strconv.Atoi(text)
		if err != nil {
			return "", site.WrongForm("the days must be a whole number, or empty for never.")
		}
		spec.ExpiresInDays = &days
	}
	secret, key, err := p.parts.Access.CreateAPIKey(ctx, spec)
	return keyCreated(c, secret, key, err)
}

func (p *pages) revokeAPIKey(ctx context.Context, c echo.Context) (href string, err error) {
	_, err = p.parts.Access.RevokeAPIKey(ctx, c.Param("key"))
	return "/ui/api-keys?done=key-revoked", err
}

func userPath(name string) string   { return "/ui/users/" + url.PathEscape(name) }
func apiKeyPath(name string) string { return "/ui/api-keys/" + url.PathEscape(name) }
