package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"path/filepath"
	"strings"
	"time"

	"postrider/internal/cli/rest"
	"postrider/internal/endpointconf"
	"postrider/internal/terminal"
	"postrider/jobs/export"
)

type deadletterExportCmd struct {
	rest.ServerFlags
	Topic        string     `api:"topic" help:"Those of this topic." placeholder:"NAME"`
	Subscription string     `api:"subscription" help:"Those of event subscriptions of this name." placeholder:"NAME"`
	Reason       string     `api:"reason" help:"Those with this reason, such as MaxDeliveryAttemptsExceeded." placeholder:"REASON"`
	State        string     `api:"state" help:"Those in this state: open, redelivered or resolved (default: all)." placeholder:"STATE"`
	From         *time.Time `api:"deadLetteredFrom" help:"Those dead-lettered at this time or later: 1h (an hour ago), 2026-11-20 or 2026-11-20T09:30:00Z." placeholder:"TIME"`
	Until        *time.Time `api:"deadLetteredUntil" aliases:"to" help:"Those dead-lettered before this time." placeholder:"TIME"`
	Format       string     `api:"format" help:"eventgrid: the event as Event Grid writes dead letters. rows: the columns of postrider.dead_letters." enum:"eventgrid,rows" default:"eventgrid"`
	Output       string     `short:"o" help:"File, or its URL (file://, s3://, azblob://), which exists only after a complete export; - is standard output." default:"-" placeholder:"FILE"`
}

func (c *deadletterExportCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	filter, err := rest.Filter(c)
	if err != nil {
		return err
	}
	filter["limit"] = 500
	out, err := c.open(ctx, std.Out)
	if err != nil {
		return err
	}
	defer out.Abort()
	line := terminal.NewProgressLine(std.Err)
	if err := c.export(ctx, client, rest.QueryURL("/v1/deadLetterExport", filter), out, line); err != nil {
		return err
	}
	if err := out.Commit(); err != nil {
		return fmt.Errorf("write to %s: %w", c.Output, err)
	}
	return nil
}

// export writes the dead letters page by page, beginning with next.
func (c *deadletterExportCmd) export(
	ctx context.Context, client *rest.Client, next string, out io.Writer, line *terminal.ProgressLine,
) error {
	exported, written := 0, 0
	defer line.End()
	for next != "" {
		var page struct {
			Value    []json.RawMessage
			NextLink string
		}
		if err := client.Call(ctx, http.MethodGet, next, nil, &page); err != nil {
			return err
		}
		for _, record := range page.Value {
			text := string(record) + "\n"
			if c.Output == "-" {
				text = terminal.EscapeControls(text) // for terminals; the JSON stays equivalent
			}
			if _, err := io.WriteString(out, text); err != nil {
				return fmt.Errorf("write to %s: %w", c.Output, err)
			}
			exported, written = exported+1, written+len(text)
		}
		line.Show(func() string {
			return fmt.Sprintf("%s, %.1f MB", terminal.Plural(exported, "dead letter"), float64(written)/1e6)
		})
		next = page.NextLink
	}
	return nil
}

func (c *deadletterExportCmd) open(ctx context.Context, stdout io.Writer) (*export.File, error) {
	if c.Output == "-" {
		return &export.File{Writer: stdout}, nil
	}
	directory, name, err := c.location()
	if err != nil {
		return nil, err
	}
	out, err := export.CreateFile(ctx, endpointconf.ExportTarget{Location: directory}, name)
	if err != nil {
		return nil, fmt.Errorf("write to %s: %w", c.Output, err)
	}
	return out, nil
}

// location splits --output into a directory and a file name.
func (c *deadletterExportCmd) location() (directory endpointconf.Location, name string, err error) {
	if !strings.Contains(c.Output, "://") {
		whole, err := filepath.Abs(c.Output)
		return endpointconf.Location{Scheme: "file", Path: filepath.Dir(whole)}, filepath.Base(whole), err
	}
	l, err := endpointconf.ParseLocation(c.Output)
	if err != nil {
		return l, "", terminal.Usagef("--output %q: %v", c.Output, err)
	}
	if l.Path == "" {
		return l, "", terminal.Usagef("--output %q: must name a file in the bucket", c.Output)
	}
	l.Path, name = path.Split(l.Path)
	if trimmed := strings.TrimSuffix(l.Path, "/"); trimmed != "" || l.Scheme != "file" {
		l.Path = trimmed
	}
	return l, name, nil
}
