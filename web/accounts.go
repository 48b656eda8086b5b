package web

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"postrider/access"
	"postrider/postgres"
)

// accountView is what account.html shows.
type accountView struct {
	Session *access.Session // nil where nobody has to sign in
	Least   int
	Keys    []access.APIKey // personal keys that work
	Roles   []access.Role   // those that a personal key may have
	Made    *access.APIKey  // with its secret, which is shown once
	Secret  string
	Machine string // as it was typed, if it was rejected
}

func (p *pages) account(c echo.Context) error {
	return p.showAccount(c, nil, "")
}

func (p *pages) showAccount(c echo.Context, made *access.APIKey, secret string) error {
	session, _ := c.Get(sessionKey).(*access.Session)
	view := accountView{Session: session, Least: access.MinPassword, Made: made, Secret: secret}
	if session != nil {
		ctx, cancel := pageContext(c)
		defer cancel()
		var err error
		if view.Keys, err = p.parts.Access.PersonalKeys(ctx, session.User); err != nil {
			return err
		}
		for _, choice := range roleChoices {
			if session.Role.Allows(choice.Role) {
				view.Roles = append([]access.Role{choice.Role}, view.Roles...)
			}
		}
		if made == nil {
			view.Machine = c.FormValue("machine")
		}
	}
	return p.show(c, "account", "Your account", false, view)
}

// errNoSession: a dashboard without a login has no accounts to change.
var errNoSession = &refusedError{status: http.StatusConflict, text: "Nothing was done: nobody signs in here."}

func (p *pages) changePassword(ctx context.Context, c echo.Context) (href string, err error) {
	session, ok := c.Get(sessionKey).(*access.Session)
	switch {
	case !ok:
		return "", errNoSession
	case c.FormValue("password") != c.FormValue("again"):
		return "", wrongForm("the two passwords differ.")
	}
	if err := p.parts.Access.ChangePassword(ctx, session.User, c.FormValue("old"), c.FormValue("password")); err != nil {
		return "", err
	}
	dropSession(c)
	return "/ui/sign-in?done=password-changed", nil // every session has ended, this one too
}

func (p *pages) signOutEverywhere(ctx context.Context, c echo.Context) (href string, err error) {
	session, ok := c.Get(sessionKey).(*access.Session)
	if !ok {
		return "", errNoSession
	}
	dropSession(c)
	_, err = p.parts.Access.EndSessions(ctx, session.User)
	return "/ui/sign-in?done=signed-out", err
}

// usersView is what users.html shows.
type usersView struct {
	Rows  []access.User
	More  bool // than are shown
	Roles []roleChoice
	Me    string
	Least int
	// What was typed, where it was refused.
	Name string
	Role access.Role
}

type roleChoice struct {
	Role access.Role
	May  string
}

// roleChoices say what each role may.
var roleChoices = []roleChoice{
	{access.RoleViewer, "sees everything but secrets"},
	{access.RoleOperator, "also redelivers, purges, holds and releases"},
	{access.RoleAdmin, "also changes the configuration, sees secrets and lets others in"},
}

func (p *pages) users(c echo.Context) error {
	ctx, cancel := pageContext(c)
	defer cancel()
	list, err := p.parts.Access.Users(ctx, "", accountsShown+1)
	if err != nil {
		return err
	}
	view := usersView{
		Rows: list[:min(len(list), accountsShown)], More: len(list) > accountsShown, Roles: roleChoices,
		Least: access.MinPassword, Name: c.FormValue("name"), Role: access.Role(c.FormValue("role")),
	}
	if view.Role == "" {
		view.Role = access.RoleViewer
	}
	if session, ok := c.Get(sessionKey).(*access.Session); ok {
		view.Me = session.User
	}
	return p.show(c, "users", "Users", false, view)
}

func (p *pages) addUser(ctx context.Context, c echo.Context) (href string, err error) {
	name, password := c.FormValue("name"), c.FormValue("password")
	switch _, err := p.parts.Access.User(ctx, name); {
	case err == nil: // a person who adds somebody would be surprised to have changed somebody
		return "", &refusedError{status: http.StatusConflict, text: "Nothing was done: there is a user of this name already."}
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
	change := access.UserSpec{} // what is not named stays as it is then, whoever else changes it meanwhile
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
		return "", wrongForm("the form asks for no change.")
	}
	_, err = p.parts.Access.PutUser(ctx, name, change)
	return "/ui/users?done=user-changed", err
}

func (p *pages) removeUser(ctx context.Context, c echo.Context) (href string, err error) {
	return "/ui/users?done=user-removed", p.parts.Access.DeleteUser(ctx, c.Param("user"))
}

// apiKeysView is what api-keys.html shows.
type apiKeysView struct {
	Rows   []access.APIKey
	More   bool // than are shown
	Scopes []scopeChoice
	Made   *access.APIKey // with its secret, which is shown this once
	Secret string
	// What was typed, where it was refused.
	Name, Topic, Days string
	Scope             access.Scope
}

type scopeChoice struct {
	Scope access.Scope
	May   string
}

// scopeChoices say what each scope opens.
var scopeChoices = []scopeChoice{
	{access.ScopePublish, "publishes, to one topic or to all"},
	{access.ScopeRead, "reads everything but secrets"},
	{access.ScopeOperate, "also redelivers, purges, holds and releases"},
	{access.ScopeAdmin, "also changes the configuration and reads secrets"},
}

func (p *pages) apiKeys(c echo.Context) error { return p.showAPIKeys(c, nil, "") }

func (p *pages) showAPIKeys(c echo.Context, made *access.APIKey, secret string) error {
	ctx, cancel := pageContext(c)
	defer cancel()
	list, err := p.parts.Access.APIKeys(ctx, "", accountsShown+1)
	if err != nil {
		return err
	}
	view := apiKeysView{
		Rows: list[:min(len(list), accountsShown)], More: len(list) > accountsShown, Scopes: scopeChoices, Made: made,
		Secret: secret, Scope: access.Scope(c.FormValue("scope")),
	}
	if view.Scope == "" {
		view.Scope = access.ScopePublish
	}
	if made == nil {
		view.Name, view.Topic, view.Days = c.FormValue("name"), c.FormValue("topic"), c.FormValue("days")
	}
	return p.show(c, "api-keys", "API keys", false, view)
}

// accountsShown is more users or keys than anybody wants to look at; the REST API has them all.
const accountsShown = 500

// createAPIKey answers with the page itself: a redirect would have to carry the key.
func (p *pages) createAPIKey(c echo.Context) error {
	ctx, cancel := pageContext(c)
	defer cancel()
	spec, err := apiKeySpec(c)
	if err == nil {
		var key string
		var made *access.APIKey
		if key, made, err = p.parts.Access.CreateAPIKey(ctx, spec); err == nil {
			return p.showAPIKeys(c, made, key)
		}
	}
	if said := p.accountRefusal(err); said != nil {
		c.Set(refusalKey, said)
		return p.apiKeys(c)
	}
	return err
}

func apiKeySpec(c echo.Context) (spec access.APIKeySpec, err error) {
	spec = access.APIKeySpec{
		Name: c.FormValue("name"), Scope: access.Scope(c.FormValue("scope")), Topic: strings.TrimSpace(c.FormValue("topic")),
	}
	if text := strings.TrimSpace(c.FormValue("days")); text != "" {
		days, err := strconv.Atoi(text)
		if err != nil {
			return spec, wrongForm("the days must be a whole number, or empty for never.")
		}
		spec.ExpiresInDays = &days
	}
	return spec, nil
}

func (p *pages) revokeAPIKey(ctx context.Context, c echo.Context) (href string, err error) {
	_, err = p.parts.Access.RevokeAPIKey(ctx, c.Param("key"))
	return "/ui/api-keys?done=key-revoked", err
}

func userPath(name string) string   { return "/ui/users/" + url.PathEscape(name) }
func apiKeyPath(name string) string { return "/ui/api-keys/" + url.PathEscape(name) }
