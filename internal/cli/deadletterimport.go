package cli

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"postrider/internal/cli/rest"
	"postrider/internal/event"
	"postrider/internal/terminal"
	"postrider/jobs/export"
)

type deadletterImportCmd struct {
	rest.Flags
	Sources      []string `arg:"" name:"source" help:"Files, directories, the URL of an Azure container, or - for standard input."`
	Topic        string   `required:"" predictor:"topic" help:"Topic that gets the dead letters." placeholder:"NAME"`
	Subscription string   `help:"Event subscription that gets all dead letters (default: the one that the path names)." placeholder:"NAME"`
	DryRun       bool     `help:"Check the dead letters and import nothing."`
}

// Help is shown by deadletter import --help.
func (deadletterImportCmd) Help() string {
	return `Reads the files that Azure Event Grid writes for dead letters, of custom topics and of namespace topics, and
those of deadletter export. Each dead letter is imported once, so you can repeat the command. Then it can be searched,
repaired and redelivered like others. The files do not change.

In directories and containers, files that end with .json, .jsonl or .ndjson are read, also in folders below. A path such
as ORDERS/2026/11/22/9/GUID.json names the event subscription; the letter case of its name does not matter. What cannot
be imported is listed, and the exit code is 1.

A container is azblob://CONTAINER or https://ACCOUNT.blob.core.windows.net/CONTAINER, with a prefix of blobs if you
like. Credentials are those of exports: AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN.

Examples:
  postrider deadletter import ./deadletters --topic orders --dry-run
  postrider deadletter import ./deadletters --topic orders
  postrider deadletter import azblob://deadletters/ORDERS --topic orders
  postrider deadletter import dead-letter.json --topic orders --subscription billing`
}

const (
	// maxImportedFile is the maximum size of a file, which is in memory.
	maxImportedFile = 256 << 20
	// A request has at most maxDeadLetters, and more than maxDeadLetterBytes only for one dead letter.
	maxDeadLetters     = 500
	maxDeadLetterBytes = 2 << 20
	// shownRejections is the number of rejections in a table.
	shownRejections = 100
)

// importer reads files and imports their dead letters.
type importer struct {
	*deadletterImportCmd
	client        *rest.Client
	subscriptions []string // of the topic
	progress      *terminal.ProgressLine

	waiting []fileDeadLetter // for the next request
	bytes   int
	done    importSummary
}

// importSummary is the result of an import.
type importSummary struct {
	Topic           string               `json:"topic"`
	DryRun          bool                 `json:"dryRun"`
	Files           int                  `json:"files"`
	Imported        int                  `json:"imported"`
	AlreadyImported int                  `json:"alreadyImported"`
	Rejected        []rejectedDeadLetter `json:"rejected"`
}

// rejectedDeadLetter is a dead letter that was not imported. Index is its place in the file, from 0.
type rejectedDeadLetter struct {
	File   string `json:"file"`
	Index  int    `json:"index"`
	Reason string `json:"reason"`
}

// fileDeadLetter is a dead letter of a file: file is its path or URL, name what the server stores.
type fileDeadLetter struct {
	file, name, subscription string
	index                    int
	text                     json.RawMessage
}

// deadLetterFile is a file of dead letters.
type deadLetterFile struct {
	file string // its path or URL
	path string // with slashes; "" of standard input
	read func(context.Context) ([]byte, error)
}

// Run executes deadletter import.
func (c *deadletterImportCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	if slices.Contains(c.Sources, "-") && c.Subscription == "" {
		return terminal.Usagef("-: standard input has no path that names an event subscription; pass --subscription")
	}
	i := &importer{
		deadletterImportCmd: c, client: client, progress: terminal.NewProgressLine(std.Err),
		done: importSummary{Topic: c.Topic, DryRun: c.DryRun, Rejected: []rejectedDeadLetter{}},
	}
	if err := i.readSubscriptions(ctx); err != nil {
		return err
	}
	for _, source := range c.Sources { // a wrong name is reported before files of others are imported
		if _, err := i.files(ctx, std.In, source); err != nil {
			return err
		}
	}
	err := i.run(ctx, std.In)
	i.progress.End()
	if err != nil && i.done.Files == 0 {
		return err
	}
	if err == nil && len(i.done.Rejected) > 0 {
		err = fmt.Errorf("%s could not be imported", terminal.Plural(len(i.done.Rejected), "dead letter"))
	}
	return errors.Join(c.Print(std.Out, i.done, func(w io.Writer) { i.done.print(w) }), err)
}

// print prints the summary as a table.
func (s *importSummary) print(w io.Writer) {
	imported := terminal.Either(s.DryRun, "would be imported", "imported")
	fmt.Fprintf(w, "%s: %d %s, %d already imported, %d rejected.\n", terminal.Plural(s.Files, "file"), s.Imported,
		imported, s.AlreadyImported, len(s.Rejected))
	for _, r := range s.Rejected[:min(len(s.Rejected), shownRejections)] {
		fmt.Fprintf(w, "%s [%d]: %s\n", terminal.OneLine(r.File), r.Index, terminal.OneLine(r.Reason))
	}
	if more := len(s.Rejected) - shownRejections; more > 0 {
		fmt.Fprintf(w, "… and %d more; -o json lists all\n", more)
	}
}

// readSubscriptions reads the names of the topic's event subscriptions, and checks --subscription.
func (i *importer) readSubscriptions(ctx context.Context) error {
	list, err := i.client.All(ctx, rest.TopicURL(i.Topic)+"/subscriptions?limit=1000")
	if err != nil {
		return err
	}
	for _, s := range list {
		i.subscriptions = append(i.subscriptions, rest.TextAt(s, "name"))
	}
	if i.Subscription != "" && !slices.Contains(i.subscriptions, i.Subscription) {
		return terminal.Usagef("--subscription: topic %q has no event subscription %q", i.Topic, i.Subscription)
	}
	return nil
}

func (i *importer) run(ctx context.Context, stdin io.Reader) error {
	for _, source := range i.Sources {
		files, err := i.files(ctx, stdin, source)
		if err != nil {
			return err
		}
		for file, err := range files {
			if err != nil {
				return errors.Join(fmt.Errorf("%s: %w", source, err), i.send(ctx))
			}
			if err := i.add(ctx, &file); err != nil {
				return err
			}
		}
	}
	if i.done.Files == 0 {
		return errors.New("no files were found that end with .json, .jsonl or .ndjson")
	}
	return i.send(ctx)
}

// files lists the files of a source.
func (i *importer) files(
	ctx context.Context, stdin io.Reader, source string,
) (iter.Seq2[deadLetterFile, error], error) {
	if source == "-" {
		return one(deadLetterFile{file: "-", read: func(context.Context) ([]byte, error) {
			return terminal.ReadUpTo(stdin, "-", maxImportedFile)
		}}), nil
	}
	if strings.Contains(source, "://") {
		l, err := export.ParseContainer(source)
		if err != nil {
			return nil, terminal.Usagef("%s: %v", source, err)
		}
		return func(yield func(deadLetterFile, error) bool) {
			for blob, err := range export.Blobs(ctx, l) {
				if err != nil {
					yield(deadLetterFile{}, err)
					return
				}
				file := deadLetterFile{file: "azblob://" + l.Bucket + "/" + blob.Name, path: blob.Name}
				file.read = func(ctx context.Context) ([]byte, error) { return blob.Read(ctx, maxImportedFile) }
				if hasDeadLetters(blob.Name) && !yield(file, nil) {
					return
				}
			}
		}, nil
	}
	info, err := os.Stat(source)
	switch {
	case err != nil:
		return nil, terminal.Usagef("%v", err)
	case !info.IsDir():
		return one(localFile(source)), nil
	}
	return func(yield func(deadLetterFile, error) bool) {
		err := filepath.WalkDir(source, func(name string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil && name != source: // a folder that cannot be read is listed, others are read
				if !yield(deadLetterFile{file: name, read: func(context.Context) ([]byte, error) { return nil, err }}, nil) {
					return fs.SkipAll
				}
				return nil
			case err != nil:
				return err
			case entry.Type().IsRegular() && hasDeadLetters(name) && !yield(localFile(name), nil):
				return fs.SkipAll
			}
			return nil
		})
		if err != nil {
			yield(deadLetterFile{}, err)
		}
	}, nil
}

func one(file deadLetterFile) iter.Seq2[deadLetterFile, error] {
	return func(yield func(deadLetterFile, error) bool) { yield(file, nil) }
}

// hasDeadLetters reports whether a file of a directory is read.
func hasDeadLetters(name string) bool {
	return slices.Contains([]string{".json", ".jsonl", ".ndjson"}, strings.ToLower(path.Ext(name)))
}

// localFile is a file of this machine. Its absolute path may name an event subscription that the given one does not.
func localFile(name string) deadLetterFile {
	whole, err := filepath.Abs(name)
	if err != nil {
		whole = name
	}
	return deadLetterFile{file: name, path: filepath.ToSlash(whole), read: func(context.Context) ([]byte, error) {
		return terminal.ReadUpTo(nil, name, maxImportedFile)
	}}
}

// blobPath is the end of the path of a file that Event Grid writes: the event subscription, and the UTC date and hour.
// Source: Microsoft, Dead letter and retry policies, 2020-07-20.
var blobPath = regexp.MustCompile(`([^/]+)/\d{4}/\d{1,2}/\d{1,2}/\d{1,2}/[^/]+$`)

// add reads a file and imports its dead letters together with others.
func (i *importer) add(ctx context.Context, file *deadLetterFile) error {
	i.done.Files++
	text, err := file.read(ctx)
	if err != nil {
		return i.unreadable(ctx, file.file, err)
	}
	// Without the path of Event Grid, two files may have the same name.
	name, named := fmt.Sprintf("%s#sha256-%x", path.Base(file.path), sha256.Sum256(text)), ""
	if file.path == "" {
		name = strings.TrimPrefix(name, ".#")
	}
	if parts := blobPath.FindStringSubmatch(file.path); parts != nil {
		name, named = parts[0], parts[1]
	}
	subscription, why := i.subscriptionOf(named)
	letters, wrong := event.SplitDeadLetters(text)
	for n, letter := range letters {
		if why != "" {
			i.reject(file.file, n, why)
			continue
		}
		if len(i.waiting) == maxDeadLetters || i.bytes > 0 && i.bytes+len(letter) > maxDeadLetterBytes {
			if err := i.send(ctx); err != nil {
				return err
			}
		}
		i.waiting = append(i.waiting, fileDeadLetter{file.file, name, subscription, n, letter})
		i.bytes += len(letter)
	}
	switch {
	case wrong != nil:
		i.reject(file.file, len(letters), wrong.Error())
	case len(letters) == 0 && len(strings.TrimSpace(string(text))) == 0:
		i.reject(file.file, 0, "the file is empty")
	}
	return nil
}

// unreadable rejects a file that cannot be read: others may be readable. Without a connection none is.
func (i *importer) unreadable(ctx context.Context, file string, err error) error {
	if _, disconnected := errors.AsType[net.Error](err); disconnected || ctx.Err() != nil {
		return errors.Join(fmt.Errorf("%s: %w", file, err), i.send(ctx))
	}
	i.reject(file, 0, strings.TrimPrefix(err.Error(), file+": "))
	return nil
}

// subscriptionOf returns the event subscription for a name in a path; why is the reason if there is none.
func (i *importer) subscriptionOf(named string) (name, why string) {
	if i.Subscription != "" {
		return i.Subscription, ""
	}
	if named == "" {
		return "", "the path names no event subscription, as SUBSCRIPTION/2026/11/22/9/GUID.json does; pass --subscription"
	}
	if slices.Contains(i.subscriptions, named) {
		return named, ""
	}
	var found []string
	for _, s := range i.subscriptions {
		if strings.EqualFold(s, named) {
			found = append(found, s)
		}
	}
	switch len(found) {
	case 1:
		return found[0], ""
	case 0:
		return "", fmt.Sprintf("topic %q has no event subscription %q, which the path names; pass --subscription", i.Topic,
			named)
	}
	return "", fmt.Sprintf("the path may name each of %s; pass --subscription", strings.Join(found, ", "))
}

func (i *importer) reject(file string, index int, reason string) {
	i.done.Rejected = append(i.done.Rejected, rejectedDeadLetter{file, index, reason})
}

// send imports the waiting dead letters. The server imports a request as a whole: what it rejects is left out of the
// next one.
func (i *importer) send(ctx context.Context) error {
	for len(i.waiting) > 0 {
		var done struct{ Imported, AlreadyImported int }
		err := i.client.Call(ctx, http.MethodPost, rest.TopicURL(i.Topic)+"/importDeadLetters", i.request(), &done)
		if err == nil {
			i.done.Imported += done.Imported
			i.done.AlreadyImported += done.AlreadyImported
			break
		}
		rejected := rejections(err, len(i.waiting))
		if len(rejected) == 0 {
			return fmt.Errorf("%w; repeat the command: it continues where this one ended", err)
		}
		kept := i.waiting[:0]
		for n, l := range i.waiting {
			if why, ok := rejected[n]; ok {
				i.reject(l.file, l.index, why)
				continue
			}
			kept = append(kept, l)
		}
		i.waiting = kept
	}
	i.waiting, i.bytes = nil, 0
	i.progress.Show(func() string {
		return fmt.Sprintf("%s: %d imported, %d already imported, %d rejected", terminal.Plural(i.done.Files, "file"),
			i.done.Imported, i.done.AlreadyImported, len(i.done.Rejected))
	})
	return nil
}

// request is the body of a request. encoding/json would change the white space of the events.
func (i *importer) request() rest.Raw {
	body := fmt.Appendf(nil, `{"dryRun":%t,"deadLetters":[`, i.DryRun)
	for n, l := range i.waiting {
		place, _ := terminal.EncodePlainly(map[string]any{
			"importedFrom": l.name, "index": l.index, "subscription": l.subscription,
		})
		body = append(body, terminal.Either(n == 0, "", ",")...)
		body = append(body, strings.TrimSuffix(strings.TrimSpace(string(place)), "}")...)
		body = append(append(append(body, `,"deadLetter":`...), l.text...), '}')
	}
	return append(body, "]}"...)
}

// rejectedPlace is the beginning of the message about a dead letter of a request.
var rejectedPlace = regexp.MustCompile(`^deadLetters\[(\d+)\](?:\.deadLetter\b)?[.:]? ?`)

// rejections are the reasons for which the server rejected some of n dead letters, by their place in the request.
func rejections(err error, n int) map[int]string {
	response, reasons := rest.ErrorOf(err), map[int]string{}
	for _, d := range response.Body.Details {
		if place := rejectedPlace.FindStringSubmatch(d.Message); place != nil {
			at, _ := strconv.Atoi(place[1])
			if _, has := reasons[at]; !has && at < n {
				reasons[at] = strings.TrimPrefix(d.Message, place[0])
			}
		}
	}
	tooLarge := response.Status == http.StatusRequestEntityTooLarge
	if len(reasons) == 0 && n == 1 && (tooLarge || response.Status == http.StatusBadRequest) {
		reasons[0] = response.Body.Message
	}
	return reasons
}
