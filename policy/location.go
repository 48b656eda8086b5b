package policy

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"postrider/policy/filter"
)

// Location is a place outside that dead letters may be written to: a directory, a bucket of S3 or a container of Azure.
type Location struct {
	// Scheme is file, s3 or azblob.
	Scheme string
	// Bucket is the bucket's or container's name; "" of a directory.
	Bucket string
	// Path is the absolute path of a directory, or the beginning of the names of what is written, without a slash at
	// either end.
	Path string
	// Query is how the place is reached, such as region=eu-west-1. Only operators say it: it decides whom a node shows its
	// credentials.
	Query string
}

// String is the location without its query.
func (l Location) String() string {
	if l.Scheme == "file" || l.Path == "" {
		return l.Scheme + "://" + l.Bucket + l.Path
	}
	return l.Scheme + "://" + l.Bucket + "/" + l.Path
}

// ParseLocation reads the URL of a location: file:///directory, s3://bucket/beginning?region=… or
// azblob://container/beginning.
func ParseLocation(raw string) (Location, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" {
		return Location{}, errors.New("must be a URL such as file:///var/lib/postrider/dead or s3://bucket?region=eu-west-1")
	}
	l := Location{Scheme: u.Scheme, Bucket: u.Host, Path: strings.Trim(u.Path, "/"), Query: u.RawQuery}
	switch {
	case !slices.Contains([]string{"file", "s3", "azblob"}, u.Scheme):
		return l, errors.New("must begin with file://, s3:// or azblob://")
	case u.User != nil || strings.Contains(raw, "#"):
		return l, errors.New("must have no user name, password or fragment")
	case l.Path != "" && !plainPath(l.Path):
		return l, errors.New("must have no empty part in its path, none of . and .., no backslash and no control character")
	case u.Scheme != "file" && (u.Hostname() == "" || u.Port() != ""):
		return l, fmt.Errorf("must name a bucket or container after %s://", u.Scheme)
	case u.Scheme == "azblob":
		return l, checkContainer(u.Host)
	case u.Scheme != "file":
		return l, nil
	case l.Bucket != "" || l.Path == "" || l.Query != "":
		return l,
			errors.New("must be an absolute directory, with three slashes and without a query: file:///var/lib/postrider/dead")
	}
	l.Path = "/" + l.Path
	return l, nil
}

// plainPath reports whether a path goes nowhere but down.
func plainPath(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return filter.Storable(path) &&
		!strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' })
}

// below is the rest of a location that is this one or within it.
func (l Location) below(inner Location) (rest string, ok bool) {
	if l.Scheme != inner.Scheme || l.Bucket != inner.Bucket {
		return "", false
	}
	if l.Path == "" || l.Path == inner.Path {
		return strings.TrimPrefix(inner.Path, l.Path), true
	}
	return strings.CutPrefix(inner.Path, l.Path+"/")
}

// DeadLetterProperties say where dead letters are exported to: URL and Prefix, or ResourceID and BlobContainerName,
// which are Event Grid's.
type DeadLetterProperties struct {
	URL               string `json:"url,omitempty"`
	Prefix            string `json:"prefix,omitempty"`
	ResourceID        string `json:"resourceId,omitempty"`
	BlobContainerName string `json:"blobContainerName,omitempty"`
}

// ExportTarget is where an event subscription's dead letters are written: Path in Location.
type ExportTarget struct {
	Location Location
	Path     string // "" or a path without slashes at its ends
}

// String is the target without its query.
func (t ExportTarget) String() string {
	if t.Path == "" {
		return t.Location.String()
	}
	return t.Location.String() + "/" + t.Path
}

// ExportLocations are what an operator allows: nobody may have a node write to whatever file or bucket it can reach.
type ExportLocations struct {
	// Allowed are the locations that event subscriptions may name, or name something within.
	Allowed []Location
	// Containers says what is meant by Event Grid's storage containers; see AddContainer.
	Containers map[string]Location
}

// storageAccount is a storage account's resource id; it may be a container's.
var storageAccount = regexp.MustCompile(`(?i)^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Storage/` +
	`storageAccounts/([A-Za-z0-9]{3,24})(?:/blobServices/default/containers/([^/]+))?$`)

// namedContainer is a container as AddContainer takes it.
var namedContainer = regexp.MustCompile(`(?i)^(?:(/subscriptions/[^/]+/resourceGroups/[^/]+/providers/` +
	`Microsoft\.Storage/storageAccounts/[A-Za-z0-9]{3,24})|([A-Za-z0-9]{3,` +
	`24}))(?:/blobServices/default/containers)?/([^/]+)$`)

// AddContainer reads "ACCOUNT/CONTAINER=URL". ACCOUNT is the name of a storage account or its resource id; the resource
// id of a container will do, too.
func (l *ExportLocations) AddContainer(text string) error {
	container, target, found := strings.Cut(text, "=")
	parts := namedContainer.FindStringSubmatch(container)
	if !found || parts == nil {
		return errors.New("must be ACCOUNT/CONTAINER=URL, for example mystorage/deadletters=s3://bucket?region=eu-west-1")
	}
	if err := checkContainer(parts[3]); err != nil {
		return err
	}
	location, err := ParseLocation(target)
	if err != nil {
		return fmt.Errorf("the URL %w", err)
	}
	if l.Containers == nil {
		l.Containers = map[string]Location{}
	}
	l.Containers[containerKey(parts[1]+parts[2], parts[3])] = location
	return nil
}

// containerKey: Azure's names are one whatever their case.
func containerKey(account, container string) string {
	return strings.ToLower(account + "/" + container)
}

const (
	propertiesField = "deadLetterDestination.properties"
	maxPrefix       = 512
)

func propertyError(name, format string, args ...any) error {
	return invalid(propertiesField+"."+name, fmt.Sprintf(format, args...))
}

// Resolve says where dead letters go that are to go to p, or as a *ValidationError why they may not.
func (l ExportLocations) Resolve(p DeadLetterProperties) (ExportTarget, error) {
	if p.ResourceID != "" || p.BlobContainerName != "" {
		return l.container(p)
	}
	named, err := ParseLocation(p.URL)
	if err != nil {
		return ExportTarget{}, propertyError("url", "%s", err)
	}
	if p.Prefix != "" && (len(p.Prefix) > maxPrefix || !plainPath(p.Prefix)) {
		return ExportTarget{}, propertyError("prefix",
			"must be a path of %d characters or less, without a slash at either end, an empty part, a part . or .., a "+
				"backslash and control characters", maxPrefix)
	}
	allowed, below, err := l.allowed(named)
	if err != nil {
		return ExportTarget{}, err
	}
	if named.Query != "" && named.Query != allowed.Query {
		return ExportTarget{}, propertyError("url",
			"must have no query: how %s is reached is the operator's to say, in --dead-letter-location", allowed)
	}
	return ExportTarget{Location: allowed, Path: strings.Trim(below+"/"+p.Prefix, "/")}, nil
}

// allowed is the innermost allowed location that the one named is in.
func (l ExportLocations) allowed(named Location) (found Location, below string, err error) {
	names := make([]string, 0, len(l.Allowed))
	for _, a := range l.Allowed {
		rest, ok := a.below(named)
		if ok && (found.Scheme == "" || len(a.Path) > len(found.Path)) {
			found, below = a, rest
		}
		names = append(names, a.String())
	}
	switch {
	case found.Scheme != "":
		return found, below, nil
	case len(names) == 0:
		return found, "", propertyError("url",
			"is not allowed: an operator has to start the nodes with --dead-letter-location %s", named)
	}
	return found, "", propertyError("url", "is not allowed: it must be, or be within, %s, as --dead-letter-location says",
		strings.Join(names, " or "))
}

// container is what an operator says that one of Event Grid's storage containers means here.
func (l ExportLocations) container(p DeadLetterProperties) (ExportTarget, error) {
	account, container, err := p.Container()
	if err != nil {
		return ExportTarget{}, err
	}
	name := account[strings.LastIndex(account, "/")+1:]
	for _, key := range []string{containerKey(account, container), containerKey(name, container)} {
		if location, ok := l.Containers[key]; ok {
			return ExportTarget{Location: location}, nil
		}
	}
	return ExportTarget{}, propertyError("blobContainerName",
		"names a container that is not configured: an operator has to start the nodes with --dead-letter-container "+
			"%s/%s=URL, for example …=s3://bucket?region=eu-west-1", name, container)
}

// Container is the resource id of the storage account and the container's name. ResourceID may be the container's own,
// as the Azure CLI takes it.
func (p DeadLetterProperties) Container() (account, container string, err error) {
	parts := storageAccount.FindStringSubmatch(p.ResourceID)
	switch {
	case parts == nil:
		return "", "", propertyError("resourceId", "must be a storage account's resource id: "+
			"/subscriptions/…/resourceGroups/…/providers/Microsoft.Storage/storageAccounts/NAME")
	case parts[2] != "" && p.BlobContainerName != "" && !strings.EqualFold(parts[2], p.BlobContainerName):
		return "", "", propertyError("blobContainerName",
			"must be %s, the container that resourceId names, or be left out", parts[2])
	}
	container = p.BlobContainerName + parts[2]
	if parts[2] != "" {
		container = parts[2]
	}
	account, _, _ = cutFold(p.ResourceID, "/blobServices/")
	if err := checkContainer(container); err != nil {
		if parts[2] != "" {
			return "", "", propertyError("resourceId", "%s", err)
		}
		return "", "", propertyError("blobContainerName", "%s", err)
	}
	return account, container, nil
}

var containerName = regexp.MustCompile(`^[A-Za-z0-9-]{3,63}$`)

func checkContainer(name string) error {
	if containerName.MatchString(name) {
		return nil
	}
	return fmt.Errorf("must name a container: 3 to 63 letters, digits and '-', not %q", name)
}

// cutFold is strings.Cut without regard to case.
func cutFold(s, sep string) (before, after string, found bool) {
	i := strings.Index(strings.ToLower(s), strings.ToLower(sep))
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// DeadLetterPath is the name of a file of dead letters within its location, as Event Grid makes it: of the hour (UTC)
// in which it is written, whose parts have no leading zeros. of is the event subscription's name in capitals, of a
// namespace topic its topic's and its own. Source: Microsoft, Manage Event Grid delivery settings; Dead lettering for
// event subscriptions to namespace topics.
func DeadLetterPath(of string, written time.Time, id string) string {
	at := written.UTC()
	return fmt.Sprintf("%s/%d/%d/%d/%d/%s.json", of, at.Year(), at.Month(), at.Day(), at.Hour(), id)
}

// The pauses between two tries to write dead letters to their location.
const (
	exportFirstPause = time.Second
	exportMaxPause   = 5 * time.Minute
)

// ExportPause is how long to wait after so many tries that failed: 1 s, 2 s, 4 s, … 5 min.
func ExportPause(tries int) time.Duration {
	return min(exportFirstPause<<min(max(tries-1, 0), 9), exportMaxPause)
}
