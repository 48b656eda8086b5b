package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

// LogoutCmd is logout.
type LogoutCmd struct {
	terminal.OutputFlag
	Server string `arg:"" optional:"" help:"URL or name (default: the default server)." placeholder:"URL|NAME"`
}

// Run executes logout.
func (c *LogoutCmd) Run(ctx context.Context) error {
	saved, one, err := storedServer(c.Server)
	if err != nil {
		return err
	}
	gone := *one
	revoked := revoke(ctx, &gone)
	saved.Remove(gone.Name)
	if err := saved.Write(); err != nil {
		return err
	}
	if revoked != nil {
		return fmt.Errorf("the key for %s is removed from this computer, but could not be revoked: %w. "+
			"It works until %s; to end it now, revoke it on your account page, %s/ui/account",
			gone.Name, revoked, terminal.Time(gone.ExpiresAt), gone.URL)
	}
	return c.Done(terminal.Deleted("name", gone.Name, "url", gone.URL), "Logged out of %s. The key is revoked.", gone.Name)
}

// storedServer returns the stored server with this name or URL, or the default server for "".
func storedServer(named string) (saved rest.SavedServers, one *rest.SavedServer, err error) {
	if saved, err = rest.ReadSavedServers(); err != nil {
		return saved, nil, err
	}
	if one, err = saved.Find(named); err == nil && one == nil {
		err = terminal.Usagef("you are not logged in to %s (%s)", cmp.Or(named, "a server"), saved.Names())
	}
	return saved, one, err
}

// revoke revokes the key at the server. It is no error if the key is invalid.
func revoke(ctx context.Context, s *rest.SavedServer) error {
	if err := rest.RequireSecret(s.URL); err != nil {
		return err
	}
	client, err := rest.ServerFlags{Server: s.URL, CAFile: s.CAFile}.Connect()
	if err != nil {
		return err
	}
	client.Key = s.Key
	err = client.Call(ctx, http.MethodDelete, "/v1/me/key", nil, nil)
	if rest.IsStatus(err, http.StatusUnauthorized) {
		return nil
	}
	return err
}

// WhoamiCmd is whoami.
type WhoamiCmd struct {
	rest.ServerFlags
	terminal.OutputFlag
}

var identity = resource{
	lines: columns("name name", "role role", "server server", "API key apiKey", "expires expiresAt"),
}

// Run executes whoami.
func (c *WhoamiCmd) Run(ctx context.Context, client *rest.Client) error {
	var me rest.Object
	if err := client.Call(ctx, http.MethodGet, "/v1/me", nil, &me); err != nil {
		return err
	}
	me["server"] = client.Base
	return c.Print(me, func(w io.Writer) { identity.print(w, me) })
}

// ServerCmd is server with its verbs.
type ServerCmd struct {
	List serverListCmd `cmd:"" help:"List the servers that you have logged in to." detail:"The keys are not shown. The default server, which verbs use without --server, is marked with *." example:"server list"`
	Use  serverUseCmd  `cmd:"" help:"Make a server the default, which verbs use without --server." example:"server use staging"`
}

// shownServer is a stored server without its key.
type shownServer struct {
	rest.SavedServer
	Default bool `json:"default"`
}

func shown(one *rest.SavedServer, isDefault bool) shownServer {
	s := shownServer{*one, isDefault}
	s.Key, s.ExpiresAt = "", one.ExpiresAt.UTC()
	return s
}

type serverListCmd struct{ terminal.OutputFlag }

func (c *serverListCmd) Run() error {
	saved, err := rest.ReadSavedServers()
	if err != nil {
		return err
	}
	list := make([]shownServer, len(saved.Servers))
	for i := range list {
		list[i] = shown(&saved.Servers[i], saved.Servers[i].Name == saved.Default)
	}
	return c.Print(list, func(w io.Writer) {
		fmt.Fprintln(w, "  NAME\tURL\tUSER\tROLE\tKEY EXPIRES")
		for i := range list {
			one := &list[i]
			fmt.Fprintf(w, "%s%s\t%s\t%s\t%s\t%s\n", terminal.Either(one.Default, "* ", "  "), terminal.Cell(one.Name),
				terminal.Cell(one.URL), terminal.Cell(one.User), terminal.Cell(one.Role), terminal.Time(one.ExpiresAt))
		}
	})
}

type serverUseCmd struct {
	terminal.OutputFlag
	Name string `arg:"" help:"Name or URL of the server, as in server list."`
}

func (c *serverUseCmd) Run() error {
	saved, one, err := storedServer(c.Name)
	if err != nil {
		return err
	}
	saved.Default = one.Name
	if err := saved.Write(); err != nil {
		return err
	}
	return c.Done(func() (any, error) { return shown(one, true), nil }, "%s (%s) is the default server.",
		one.Name, one.URL)
}
