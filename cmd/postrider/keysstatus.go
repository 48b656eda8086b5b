package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"postrider/internal/catalog"
	"postrider/internal/terminal"
)

type keysStatusCmd struct{ keysFlags }

func (keysStatusCmd) Help() string {
	return `A key is shown by its id. Nodes of --role api report no keys: restart them in each step, too. The steps are
those of docs/operate/configure.md, "Rotate the encryption key".

Example:
  postrider keys status --database-url postgres://postrider:secret@db:5432/postrider`
}

func (c *keysStatusCmd) Run(ctx context.Context, std terminal.Streams) error {
	if err := c.require(); err != nil {
		return err
	}
	own := map[string]string{} // names of this command's keys, by their ids
	if c.EncryptionKey != "" {
		sealer, err := c.sealer()
		if err != nil {
			return err
		}
		for _, id := range sealer.KeyIDs() {
			own[id] = terminal.Either(id == sealer.KeyID(), "POSTRIDER_ENCRYPTION_KEY", "POSTRIDER_PREVIOUS_ENCRYPTION_KEYS")
		}
	}
	pool, err := openDatabase(ctx, c.databaseFlags, 2, c.logger(std.Err))
	if err != nil {
		return err
	}
	defer pool.Close()
	status, err := catalog.ReadKeyStatus(ctx, pool)
	if err != nil {
		return err
	}
	value := struct {
		catalog.KeyStatus
		Next string `json:"next"`
	}{status, status.Next()}
	return c.Print(std.Out, value, func(out io.Writer) {
		fmt.Fprintln(out, "KEY\tSTATE\tFIRST USED\tIN THIS ENVIRONMENT")
		for _, k := range status.Keys {
			state := terminal.Either(k.RetiredAt == nil, "in use", "retired")
			fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", k.KeyID, state, terminal.Time(k.CreatedAt), own[k.KeyID])
			delete(own, k.KeyID)
		}
		for _, id := range slices.Sorted(maps.Keys(own)) {
			fmt.Fprintf(out, "%s\tnot used yet\t\t%s\n", id, own[id])
		}
		fmt.Fprintln(out, "\nNODE\tHOST\tENCRYPTS WITH\tALSO DECRYPTS")
		for _, n := range status.Nodes {
			ids := append(slices.Clip(n.KeyIDs), "not reported")
			also := strings.Join(ids[1:max(1, len(n.KeyIDs))], ", ")
			fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", n.Node, terminal.PlainText(n.Host), ids[0], also)
		}
		fmt.Fprintf(out, "\n%s\n", status.Next())
	})
}
