package endpointconf

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"postrider/internal/filter"
)

// Location is where dead letters may be exported to: a directory, an S3 bucket or an Azure container.
type Location struct {
	Scheme string // file, s3 or azblob
	Bucket string // name of the bucket or container; "" of a directory
	// Path is the absolute path of a directory, or the prefix of the blobs' names, without a slash at either end.
	Path string
	// Query has connection settings, such as region=eu-west-1. Only operators set it: it decides who gets a node's
	// credentials.
	Query string
}

// String is the location's URL without its query.
func (l Location) String() string {
	path := (&url.URL{Path: l.Path}).EscapedPath()
	if l.Scheme == "file" || l.Path == "" {
		return l.Scheme + "://" + l.Bucket + path
	}
	return l.Scheme + "://" + l.Bucket + "/" + path
}

// onOff has the values of a parameter that is a switch.
var onOff = []string{"true", "false"}

// locationParameters are the parameters of a location's query, with their values; nil = any but an empty one.
var locationParameters = map[string]map[string][]string{
	"s3": {
		"region": nil, "endpoint": nil, "use_path_style": onOff, "accelerate": onOff, "dualstack": onOff, "profile": nil,
		"anonymous": onOff, "ssetype": {"AES256", "aws:kms"}, "kmskeyid": nil,
	},
	"azblob": {
		"storage_account": nil, "domain": nil, "protocol": {"https", "http"}, "cdn": onOff, "localemu": onOff,
	},
}

// checkQuery checks the query of a bucket or a container.
func (l Location) checkQuery() error {
	query, err := url.ParseQuery(l.Query)
	if err != nil {
		return errors.New("must have a query such as name=value&name=value")
	}
	known := locationParameters[l.Scheme]
	for _, name := range slices.Sorted(maps.Keys(query)) {
		values, ok := known[name]
		value := query.Get(name)
		switch {
		case !ok:
			return fmt.Errorf("must have no parameter %q in its query; %s:// has %s",
				name, l.Scheme, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		case len(query[name]) > 1 || value == "":
			return fmt.Errorf("must have one value of parameter %s", name)
		case values != nil && !slices.Contains(values, value):
			return fmt.Errorf("must have %s or %s as parameter %s, not %q", values[0], values[1], name, value)
		case name == "endpoint" && !plainServer(value):
			return fmt.Errorf("must have a URL such as https://s3.example.com:9000, without a path, as endpoint, not %q", value)
		}
	}
	return nil
}

// plainServer reports whether a URL names a server and nothing else.
func plainServer(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.User == nil &&
		strings.Trim(u.Path, "/") == "" && !strings.ContainsAny(text, "?#")
}

// ParseLocation reads the URL of a location: file:///directory, s3://bucket/prefix?region=… or
// azblob://container/prefix.
func ParseLocation(raw string) (Location, error) {
	if problem := EncodingProblem(raw); problem != "" {
		return Location{}, errors.New(problem)
	}
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
		return l, errors.New("must have a path without empty parts, . and .., backslashes and control characters")
	case u.Scheme != "file" && (u.Host == "" || u.Hostname() != u.Host):
		return l, fmt.Errorf("must name a bucket or container after %s://", u.Scheme)
	case u.Scheme == "azblob" && checkContainer(u.Host) != nil:
		return l, checkContainer(u.Host)
	case u.Scheme != "file":
		return l, l.checkQuery()
	case l.Bucket != "" || l.Path == "" || l.Query != "":
		return l,
			errors.New("must be an absolute directory, with three slashes and without a query: file:///var/lib/postrider/dead")
	}
	l.Path = "/" + l.Path
	return l, nil
}

// plainPath reports whether a path stays below its beginning.
func plainPath(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return filter.Storable(path) &&
		!strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' })
}

// below returns the rest of inner's path if inner is this location or within it.
func (l Location) below(inner Location) (rest string, ok bool) {
	if l.Scheme != inner.Scheme || l.Bucket != inner.Bucket {
		return "", false
	}
	if l.Path == "" || l.Path == inner.Path {
		return strings.TrimPrefix(inner.Path, l.Path), true
	}
	return strings.CutPrefix(inner.Path, l.Path+"/")
}

// DeadLetterProperties is the location: url and optionally prefix for Blob, resourceId and blobContainerName for
// StorageBlob.
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

// String is the target's URL without its query.
func (t ExportTarget) String() string {
	within := t.Location
	if t.Path == "" {
		return within.String()
	}
	if within.Path == "" {
		within.Path = t.Path
		return within.String()
	}
	within.Path += "/" + t.Path
	return within.String()
}

// ExportLocations are what an operator allows: nodes must not write to any file or bucket that a client names.
type ExportLocations struct {
	// Allowed are the locations that event subscriptions may name, with all that is within them.
	Allowed []Location
	// Containers are the locations of Event Grid's storage containers; see AddContainer.
	Containers map[string]Location
}

const accountID = `/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Storage/storageAccounts/` +
	`[A-Za-z0-9]{3,24}`

// storageAccount matches the resource id of a storage account or of a container in it; namedContainer the first part of
// AddContainer's text.
var (
	storageAccount = regexp.MustCompile(`(?i)^(` + accountID + `)(?:/blobServices/default/containers/([^/]+))?$`)
	namedContainer = regexp.MustCompile(`(?i)^(` + accountID + `|[A-Za-z0-9]{3,24})` +
		`(?:/blobServices/default/containers)?/([^/]+)$`)
)

// AddContainer reads "ACCOUNT/CONTAINER=URL". ACCOUNT is the name or the resource id of a storage account;
// ACCOUNT/CONTAINER may also be the resource id of a container.
func (l *ExportLocations) AddContainer(text string) error {
	container, target, found := strings.Cut(text, "=")
	parts := namedContainer.FindStringSubmatch(container)
	if !found || parts == nil {
		return errors.New("must be ACCOUNT/CONTAINER=URL, for example mystorage/deadletters=s3://bucket?region=eu-west-1")
	}
	if err := checkContainer(parts[2]); err != nil {
		return err
	}
	location, err := ParseLocation(target)
	if err != nil {
		return fmt.Errorf("the URL %w", err)
	}
	if l.Containers == nil {
		l.Containers = map[string]Location{}
	}
	l.Containers[containerKey(parts[1], parts[2])] = location
	return nil
}

// containerKey is in lower case, because Azure compares names without regard to case.
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

// Resolve returns the target of dead letters with these properties. Its error is a *ValidationError.
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
			"must have no query: the operator sets that of %s with --dead-letter-location", allowed)
	}
	return ExportTarget{Location: allowed, Path: strings.Trim(below+"/"+p.Prefix, "/")}, nil
}

// allowed returns the innermost allowed location that contains the named one.
func (l ExportLocations) allowed(named Location) (found Location, below string, err error) {
	names := make([]string, 0, len(l.Allowed))
	for _, a := range l.Allowed {
		rest, ok := a.below(named)
		if ok && (found.Scheme == "" || len(a.Path) > len(found.Path)) {
			found, below = a, rest
		}
		names = append(names, a.String())
	}
	if found.Scheme != "" {
		return found, below, nil
	}
	if len(names) == 0 {
		return found, "", propertyError("url",
			"is not allowed: start the nodes with --dead-letter-location %s", named)
	}
	return found, "", propertyError("url", "is not allowed: it must be, or be within, a --dead-letter-location: %s",
		strings.Join(names, " or "))
}

// container returns the target that an operator has set for one of Event Grid's storage containers.
func (l ExportLocations) container(p DeadLetterProperties) (ExportTarget, error) {
	account, container, err := p.split()
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
		"names a container that is not configured: start the nodes with --dead-letter-container %s/%s=URL, for example "+
			"…=s3://bucket?region=eu-west-1", name, container)
}

// split returns the resource id of the storage account and the container's name. ResourceID may be the container's, as
// the Azure CLI accepts it.
func (p DeadLetterProperties) split() (account, container string, err error) {
	parts := storageAccount.FindStringSubmatch(p.ResourceID)
	if parts == nil {
		return "", "", propertyError("resourceId", "must be a storage account's resource id: "+
			"/subscriptions/…/resourceGroups/…/providers/Microsoft.Storage/storageAccounts/NAME")
	}
	if parts[2] != "" && p.BlobContainerName != "" && !strings.EqualFold(parts[2], p.BlobContainerName) {
		return "", "", propertyError("blobContainerName",
			"must be absent or %s, the container that resourceId names", parts[2])
	}
	field, container := "blobContainerName", p.BlobContainerName
	if parts[2] != "" {
		field, container = "resourceId", parts[2]
	}
	if err := checkContainer(container); err != nil {
		return "", "", propertyError(field, "%s", err)
	}
	return parts[1], container, nil
}

var containerName = regexp.MustCompile(`^[A-Za-z0-9-]{3,63}$`)

func checkContainer(name string) error {
	if containerName.MatchString(name) {
		return nil
	}
	return fmt.Errorf("must name a container: 3 to 63 letters, digits and '-', not %q", name)
}

// DeadLetterPath is the name of a file of dead letters within its location, as Event Grid builds it from the hour (UTC)
// in which it is written, without leading zeros. of is the event subscription's name in capitals; on a namespace topic,
// the topic's name and its own. Source: Microsoft, Manage Event Grid delivery settings; Dead lettering for event
// subscriptions to namespace topics.
func DeadLetterPath(of string, written time.Time, id string) string {
	at := written.UTC()
	return fmt.Sprintf("%s/%d/%d/%d/%d/%s.json", of, at.Year(), at.Month(), at.Day(), at.Hour(), id)
}

// ExportPause is the wait after a number of failed tries to export dead letters: 1 s, 2 s, 4 s, … 5 min.
func ExportPause(tries int) time.Duration {
	return min(time.Second<<min(max(tries-1, 0), 9), 5*time.Minute)
}
