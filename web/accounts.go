package web

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"postrider/internal/access"
	"postrider/internal/postgres"
	"postrider/web/site"
)

// newKey is a created API key. The page of its form shows the secret once; a redirect would have to carry it.
type newKey struct {
	*access.APIKey
	Secret string
}

// keyInContext is the key of a created API key in the context of a request.
const keyInContext = "postrider.key"

// keyCreated is the result of an action that creates a key.
func keyCreated(c echo.Context, secret string, key *access.APIKey, err error) (href string, _ error) {
	if err == nil {
		c.Set(keyInContext, &newKey{key, secret})
	}
	return "", err
}

type accountView struct {
	Session *access.Session // nil on a dashboard without sign-in
	Least   int             // characters of a password
	Keys    []access.APIKey // valid personal keys
	Roles   []access.Role   // allowed for a personal key
	Created *newKey
	Form    url.Values // the input of a rejected form
}

func (p *pages) account(ctx context.Context, c echo.Context) (err error) {
	view := accountView{Session: site.SessionIn(c), Least: access.MinPassword, Form: site.Input(c)}
	view.Created, _ = c.Get(keyInContext).(*newKey)
	if view.Session != nil {
		if view.Keys, err = p.Parts.Access.PersonalKeys(ctx, view.Session.User); err != nil {
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

// accountAction is an action on the account of the signed-in user.
func (p *pages) accountAction(
	do func(ctx context.Context, c echo.Context, user string) (href string, err error), show site.Page,
) echo.HandlerFunc {
	return site.Act(func(ctx context.Context, c echo.Context) (string, error) {
		if session := site.SessionIn(c); session != nil {
			return do(ctx, c, session.User)
		}
		return "", site.Rejected(http.StatusConflict, "this dashboard has no sign-in")
	}, show)
}

func (p *pages) changePassword(ctx context.Context, c echo.Context, user string) (href string, err error) {
	password, err := newPassword(c)
	if err != nil {
		return "", err
	}
	if err := p.Parts.Access.ChangePassword(ctx, user, c.FormValue("old"), password); err != nil {
		return "", err
	}
	site.SetSession(c, "") // all sessions have ended
	return "/ui/sign-in?done=password-changed", nil
}

func (p *pages) signOutEverywhere(ctx context.Context, c echo.Context, user string) (href string, err error) {
	site.SetSession(c, "")
	_, err = p.Parts.Access.EndSessions(ctx, user)
	return "/ui/sign-in?done=signed-out", err
}

func (p *pages) createPersonalKey(ctx context.Context, c echo.Context, user string) (href string, err error) {
	days, _ := strconv.Atoi(c.FormValue("days")) // CreatePersonalKey rejects 0
	spec := access.PersonalKeySpec{Machine: c.FormValue("machine"), Role: access.Role(c.FormValue("role")), Days: days}
	secret, key, err := p.Parts.Access.CreatePersonalKey(ctx, user, spec)
	return keyCreated(c, secret, key, err)
}

func (p *pages) revokePersonalKey(ctx context.Context, c echo.Context, user string) (href string, err error) {
	_, err = p.Parts.Access.RevokePersonalKey(ctx, user, c.Param("key"))
	return "/ui/account?done=key-revoked", err
}

type usersView struct {
	site.List[access.User]
	Me    string
	Least int
	Form  url.Values // the input of a rejected form
}

func (p *pages) users(ctx context.Context, c echo.Context) error {
	list, err := site.ForwardList(ctx, c, "user", p.Parts.Access.Users, func(u *access.User) string { return u.Name })
	if err != nil {
		return err
	}
	view := usersView{List: list, Least: access.MinPassword, Form: site.Input(c)}
	if session := site.SessionIn(c); session != nil {
		view.Me = session.User
	}
	return p.Show(c, "users", "Users", false, view)
}

func (p *pages) addUser(ctx context.Context, c echo.Context) (href string, err error) {
	name, password := c.FormValue("name"), c.FormValue("password")
	switch _, err := p.Parts.Access.User(ctx, name); {
	case err == nil: // PutUser would change it
		return "", site.Rejected(http.StatusConflict, "a user with this name exists")
	case !errors.Is(err, postgres.ErrNotFound):
		return "", err
	}
	_, err = p.Parts.Access.PutUser(ctx, name,
		access.UserSpec{Role: access.Role(c.FormValue("role")), Password: &password})
	return "/ui/users?done=user-added", err
}

func (p *pages) changeUser(ctx context.Context, c echo.Context) (href string, err error) {
	name := c.Param("user")
	if _, err := p.Parts.Access.User(ctx, name); err != nil {
		return "", err
	}
	change := access.UserSpec{} // empty settings stay unchanged
	switch c.FormValue("change") {
	case "role":
		change.Role = access.Role(c.FormValue("role"))
	case "password":
		change.Password = new(c.FormValue("password"))
	case "allow-queries", "forbid-queries":
		change.Query = new(c.FormValue("change") == "allow-queries")
	case "disable", "enable":
		change.Disabled = new(c.FormValue("change") == "disable")
	case "sessions":
		_, err = p.Parts.Access.EndSessions(ctx, name)
		return "/ui/users?done=sessions-ended", err
	default:
		return "", site.Rejected(http.StatusBadRequest, "the form has no valid change")
	}
	_, err = p.Parts.Access.PutUser(ctx, name, change)
	return "/ui/users?done=user-changed", err
}

func (p *pages) removeUser(ctx context.Context, c echo.Context) (href string, err error) {
	return "/ui/users?done=user-removed", p.Parts.Access.DeleteUser(ctx, c.Param("user"))
}

type apiKeysView struct {
	site.List[access.APIKey]
	Created *newKey
	Form    url.Values // the input of a rejected form
}

func (p *pages) apiKeys(ctx context.Context, c echo.Context) error {
	list, err := site.ForwardList(ctx, c, "API key", p.Parts.Access.APIKeys,
		func(k *access.APIKey) string { return k.Name })
	if err != nil {
		return err
	}
	view := apiKeysView{List: list, Form: site.Input(c)}
	view.Created, _ = c.Get(keyInContext).(*newKey)
	return p.Show(c, "api-keys", "API keys", false, view)
}

func (p *pages) createAPIKey(ctx context.Context, c echo.Context) (href string, err error) {
	spec := access.APIKeySpec{
		Name: c.FormValue("name"), Scope: access.Scope(c.FormValue("scope")), Topic: strings.TrimSpace(c.FormValue("topic")),
		Subscription: strings.TrimSpace(c.FormValue("subscription")),
	}
	if choice := c.FormValue("query"); choice != "" {
		spec.Query = new(choice == "on")
	}
	if text := strings.TrimSpace(c.FormValue("days")); text != "" {
		days, err := strconv.Atoi(text)
		if err != nil {
			return "", site.Rejected(http.StatusBadRequest, "the days until expiry must be a whole number or empty")
		}
		spec.ExpiresInDays = &days
	}
	secret, key, err := p.Parts.Access.CreateAPIKey(ctx, spec)
	return keyCreated(c, secret, key, err)
}

func (p *pages) revokeAPIKey(ctx context.Context, c echo.Context) (href string, err error) {
	_, err = p.Parts.Access.RevokeAPIKey(ctx, c.Param("key"))
	return "/ui/api-keys?done=key-revoked", err
}

func userPath(name string) string   { return "/ui/users/" + url.PathEscape(name) }
func apiKeyPath(name string) string { return "/ui/api-keys/" + url.PathEscape(name) }
