package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"postrider/access"
	"postrider/cmd/postrider/terminal"
	"postrider/server/api"
	"postrider/server/management"
)

type userCmd struct {
	Add      userAddCmd      `cmd:"" help:"Add somebody who may sign in to the dashboard."`
	List     userListCmd     `cmd:"" help:"List the users."`
	Show     userShowCmd     `cmd:"" help:"Show a user."`
	Role     userRoleCmd     `cmd:"" help:"Give a user another role; their sessions end, and their personal keys may do no more than it."`
	Password userPasswordCmd `cmd:"" help:"Give a user another password; their sessions and personal keys end."`
	Disable  userDisableCmd  `cmd:"" help:"Keep a user out without removing them; their sessions and personal keys end."`
	Enable   userEnableCmd   `cmd:"" help:"Let a user in again who was kept out."`
	Remove   userRemoveCmd   `cmd:"" help:"Remove a user; their sessions and personal keys end."`
}

// passwordFlag says where a password comes from. It is no argument: those are in the list of processes and in the
// shell's history.
type passwordFlag struct {
	PasswordStdin bool `help:"Read the password from standard input, without the line's end (default: ask for it on the terminal)."`
}

// read reads a password, of 12 to 1024 bytes as the store will say.
func (f passwordFlag) read() (string, error) {
	if f.PasswordStdin {
		raw, err := io.ReadAll(io.LimitReader(os.Stdin, access.MaxPassword+3))
		if err != nil {
			return "", fmt.Errorf("read the password: %w", err)
		}
		return string(bytes.TrimSuffix(bytes.TrimSuffix(raw, []byte("\n")), []byte("\r"))), nil
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return "", terminal.Usagef("standard input is no terminal: to read the password from it, say --password-stdin")
	}
	once, err := ask("Password: ")
	if err != nil {
		return "", err
	}
	again, err := ask("The same again: ")
	if err != nil {
		return "", err
	}
	if once != again {
		return "", terminal.Usagef("the two passwords differ")
	}
	return once, nil
}

// ask reads a line that is not shown.
func ask(question string) (string, error) {
	fmt.Fprint(os.Stderr, question)
	raw, err := term.ReadPassword(int(os.Stdin.Fd()))
	fmt.Fprintln(os.Stderr)
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}
	return string(raw), nil
}

// userNow is what a user is, as the API tells it.
func userNow(ctx context.Context, a *access.Access, name string) func() (any, error) {
	return func() (any, error) {
		u, err := a.User(ctx, name)
		if err != nil {
			return nil, err
		}
		return management.DescribeUser(u), nil
	}
}

type userAddCmd struct {
	databaseFlags
	terminal.OutputFlag
	passwordFlag
	Name string `arg:"" help:"Name to sign in with."`
	Role string `required:"" enum:"viewer,operator,admin" help:"What they may do: viewer, operator or admin." placeholder:"ROLE"`
}

// Help is shown by user add --help.
func (userAddCmd) Help() string {
	return `Examples:
  postrider user add anna --role admin
  printf %s "$PASSWORD" | postrider user add anna --role viewer --password-stdin`
}

// Run executes user add.
func (c *userAddCmd) Run(ctx context.Context) error {
	return c.access(ctx, func(ctx context.Context, a *access.Access) error {
		if _, err := a.User(ctx, c.Name); err == nil {
			return fmt.Errorf("there is a user %s already: user role and user password change them", c.Name)
		}
		password, err := c.read()
		if err != nil {
			return err
		}
		if _, err := a.PutUser(ctx, c.Name, access.UserSpec{Role: access.Role(c.Role), Password: &password}); err != nil {
			return err
		}
		return c.Done(userNow(ctx, a, c.Name), "User %s was added, with the role %s.", c.Name, c.Role)
	})
}

type userListCmd struct {
	databaseFlags
	terminal.OutputFlag
}

// Help is shown by user list --help.
func (userListCmd) Help() string { return "Example:\n  postrider user list" }

// Run executes user list.
func (c *userListCmd) Run(ctx context.Context) error {
	return c.access(ctx, func(ctx context.Context, a *access.Access) error {
		list, err := everyPage(ctx, a.Users, func(u *access.User) string { return u.Name })
		if err != nil {
			return err
		}
		described := make([]api.User, len(list))
		for i := range list {
			described[i] = management.DescribeUser(&list[i])
		}
		return c.Print(described, func(w io.Writer) {
			fmt.Fprintln(w, "NAME\tROLE\tSTATE\tSESSIONS\tLAST SIGNED IN\tADDED BY")
			for i := range list {
				u := &list[i]
				fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\n", u.Name, u.Role, userState(u), u.Sessions,
					momentOr("never", u.LastSignInAt), u.CreatedBy)
			}
		})
	})
}

func userState(u *access.User) string {
	if u.Disabled {
		return "disabled"
	}
	return "active"
}

type userShowCmd struct {
	databaseFlags
	terminal.OutputFlag
	Name string `arg:"" help:"Name of the user."`
}

// Help is shown by user show --help.
func (userShowCmd) Help() string { return "Example:\n  postrider user show anna" }

// Run executes user show.
func (c *userShowCmd) Run(ctx context.Context) error {
	return c.access(ctx, func(ctx context.Context, a *access.Access) error {
		u, err := a.User(ctx, c.Name)
		if err != nil {
			return err
		}
		return c.Print(management.DescribeUser(u), func(w io.Writer) {
			terminal.PrintNamed(w, "name", u.Name, "role", u.Role, "state", userState(u), "sessions", u.Sessions,
				"last signed in", momentOr("never", u.LastSignInAt),
				"added", u.CreatedAt, "added by", u.CreatedBy)
		})
	})
}

type userRoleCmd struct {
	databaseFlags
	terminal.OutputFlag
	Name string `arg:"" help:"Name of the user."`
	Role string `arg:"" enum:"viewer,operator,admin" help:"viewer, operator or admin."`
}

// Help is shown by user role --help.
func (userRoleCmd) Help() string { return "Example:\n  postrider user role anna operator" }

// Run executes user role.
func (c *userRoleCmd) Run(ctx context.Context) error {
	return c.access(ctx, func(ctx context.Context, a *access.Access) error {
		if _, err := a.User(ctx, c.Name); err != nil {
			return err
		}
		if _, err := a.PutUser(ctx, c.Name, access.UserSpec{Role: access.Role(c.Role)}); err != nil {
			return err
		}
		return c.Done(userNow(ctx, a, c.Name), "User %s has the role %s.", c.Name, c.Role)
	})
}

type userPasswordCmd struct {
	databaseFlags
	terminal.OutputFlag
	passwordFlag
	Name string `arg:"" help:"Name of the user."`
}

// Help is shown by user password --help.
func (userPasswordCmd) Help() string {
	return "The old one is not asked for: whoever has the database's URL may do this.\n\nExample:\n  postrider user " +
		"password anna"
}

// Run executes user password.
func (c *userPasswordCmd) Run(ctx context.Context) error {
	return c.access(ctx, func(ctx context.Context, a *access.Access) error {
		if _, err := a.User(ctx, c.Name); err != nil {
			return err
		}
		password, err := c.read()
		if err != nil {
			return err
		}
		if _, err := a.PutUser(ctx, c.Name, access.UserSpec{Password: &password}); err != nil {
			return err
		}
		return c.Done(userNow(ctx, a, c.Name), "User %s has another password.", c.Name)
	})
}

type userDisableCmd struct {
	databaseFlags
	terminal.OutputFlag
	Name string `arg:"" help:"Name of the user."`
}

// Help is shown by user disable --help.
func (userDisableCmd) Help() string {
	return "Name, role and password stay, and removing is not undone. Whoever has the database's URL may keep out the " +
		"last admin, too: user enable, or the admin token, lets one in again.\n\nExample:\n  postrider user disable anna"
}

// Run executes user disable.
func (c *userDisableCmd) Run(ctx context.Context) error {
	return c.setDisabled(ctx, c.OutputFlag, c.Name, true, "User %s is kept out.")
}

type userEnableCmd struct {
	databaseFlags
	terminal.OutputFlag
	Name string `arg:"" help:"Name of the user."`
}

// Help is shown by user enable --help.
func (userEnableCmd) Help() string { return "Example:\n  postrider user enable anna" }

// Run executes user enable.
func (c *userEnableCmd) Run(ctx context.Context) error {
	return c.setDisabled(ctx, c.OutputFlag, c.Name, false, "User %s may sign in again.")
}

func (f databaseFlags) setDisabled(
	ctx context.Context, out terminal.OutputFlag, name string, disabled bool, done string,
) error {
	return f.access(ctx, func(ctx context.Context, a *access.Access) error {
		if _, err := a.User(ctx, name); err != nil {
			return err
		}
		if _, err := a.PutUser(ctx, name, access.UserSpec{Disabled: &disabled}); err != nil {
			return err
		}
		return out.Done(userNow(ctx, a, name), done, name)
	})
}

type userRemoveCmd struct {
	databaseFlags
	terminal.OutputFlag
	terminal.ConfirmFlag
	Name string `arg:"" help:"Name of the user."`
}

// Help is shown by user remove --help.
func (userRemoveCmd) Help() string {
	return "The audit keeps the name.\n\nExamples:\n  postrider user remove anna\n  postrider user remove anna --yes"
}

// Run executes user remove.
func (c *userRemoveCmd) Run(ctx context.Context) error {
	return c.access(ctx, func(ctx context.Context, a *access.Access) error {
		if err := c.Confirm(func() (string, error) {
			u, err := a.User(ctx, c.Name)
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("Remove user %s (%s)? Name, role, password and personal keys are lost, and %s will end.",
				c.Name, u.Role, terminal.Plural(u.Sessions, "session")), nil
		}); err != nil {
			return err
		}
		if err := a.DeleteUser(ctx, c.Name); err != nil {
			return err
		}
		return c.Done(terminal.Deleted("name", c.Name), "User %s was removed.", c.Name)
	})
}
