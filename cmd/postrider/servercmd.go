package main

import (
	"fmt"
	"io"
	"time"
)

type serverCmd struct {
	List serverListCmd `cmd:"" help:"List the servers that you have logged in to."`
	Use  serverUseCmd  `cmd:"" help:"Make a server the default, which verbs use without --server."`
}

type serverListCmd struct {
	outputFlag
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

func (s *savedServers) show(one *savedServer) shownServer {
	return shownServer{one.Name, one.URL, one.User, one.Role, one.ExpiresAt.UTC(), one.Name == s.Default}
}

// Run executes server list.
func (c *serverListCmd) Run() error {
	saved, err := readSavedServers()
	if err != nil {
		return err
	}
	list := make([]shownServer, len(saved.Servers))
	for i := range list {
		list[i] = saved.show(&saved.Servers[i])
	}
	return c.print(list, func(w io.Writer) {
		fmt.Fprintln(w, "  NAME\tURL\tUSER\tROLE\tKEY EXPIRES")
		for _, one := range list {
			mark := "  "
			if one.Default {
				mark = "* "
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n",
				cell(mark+one.Name), cell(one.URL), cell(one.User), cell(one.Role), moment(one.ExpiresAt))
		}
	})
}

type serverUseCmd struct {
	outputFlag
	Name string `arg:"" help:"Name or URL of the server, as in server list."`
}

// Help is shown by server use --help.
func (serverUseCmd) Help() string { return "Example:\n  postrider server use staging" }

// Run executes server use.
func (c *serverUseCmd) Run() error {
	saved, err := readSavedServers()
	if err != nil {
		return err
	}
	one, err := saved.find(c.Name)
	if err != nil {
		return err
	}
	if one == nil {
		return usagef("%q: no server with this URL is stored (%s)", c.Name, saved.names())
	}
	saved.Default = one.Name
	if err := saved.write(); err != nil {
		return fmt.Errorf("store the default server: %w", err)
	}
	return c.did(func() (any, error) { return saved.show(one), nil }, "%s (%s) is the default server.", one.Name, one.URL)
}
