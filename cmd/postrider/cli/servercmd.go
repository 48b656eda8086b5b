package cli

import (
	"fmt"
	"io"
	"time"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

// ServerCmd is server with its verbs.
type ServerCmd struct {
	List serverListCmd `cmd:"" help:"List the servers that you have logged in to."`
	Use  serverUseCmd  `cmd:"" help:"Make a server the default, which verbs use without --server."`
}

type serverListCmd struct {
	terminal.OutputFlag
}

// Help is shown by server list --help.
func (serverListCmd) Help() string {
	return `The keys are not shown. The default server, which verbs use without --server, has a * before its name.

Example:
  postrider server list`
}

// shownServer is a stored server without its key.
type shownServer struct {
	Name      string    `json:"name"`
	URL       string    `json:"url"`
	User      string    `json:"user"`
	Role      string    `json:"role"`
	ExpiresAt time.Time `json:"expiresAt"`
	Default   bool      `json:"default"`
}

func shown(s *rest.SavedServers, one *rest.SavedServer) shownServer {
	return shownServer{one.Name, one.URL, one.User, one.Role, one.ExpiresAt.UTC(), one.Name == s.Default}
}

// Run executes server list.
func (c *serverListCmd) Run() error {
	saved, err := rest.ReadSavedServers()
	if err != nil {
		return err
	}
	list := make([]shownServer, len(saved.Servers))
	for i := range list {
		list[i] = shown(&saved, &saved.Servers[i])
	}
	return c.Print(list, func(w io.Writer) {
		fmt.Fprintln(w, "  NAME\tURL\tUSER\tROLE\tKEY EXPIRES")
		for _, one := range list {
			mark := "  "
			if one.Default {
				mark = "* "
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n",
				terminal.Cell(mark+one.Name), terminal.Cell(one.URL), terminal.Cell(one.User), terminal.Cell(one.Role),
				terminal.Time(one.ExpiresAt))
		}
	})
}

type serverUseCmd struct {
	terminal.OutputFlag
	Name string `arg:"" help:"Name or URL of the server, as in server list."`
}

// Help is shown by server use --help.
func (serverUseCmd) Help() string { return "Example:\n  postrider server use staging" }

// Run executes server use.
func (c *serverUseCmd) Run() error {
	saved, err := rest.ReadSavedServers()
	if err != nil {
		return err
	}
	one, err := saved.Find(c.Name)
	if err != nil {
		return err
	}
	if one == nil {
		return terminal.Usagef("%q: no server with this URL is stored (%s)", c.Name, saved.Names())
	}
	saved.Default = one.Name
	if err := saved.Write(); err != nil {
		return fmt.Errorf("store the default server: %w", err)
	}
	return c.Done(func() (any, error) { return shown(&saved, one), nil }, "%s (%s) is the default server.",
		one.Name, one.URL)
}
