// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/spokelet/spokelet/workers/httpclient"
)

const (
	defaultTimeout = time.Minute
	defaultBackoff = 500 * time.Millisecond
	answerTimeout  = time.Minute // a registry commits a layer before it answers
	maxConnections = 8
)

// Config says where images are. It is a part of the operator's file; its credentials are not.
type Config struct {
	// Push is the folder of the accounts' repositories, as in registry.example.com/workers.
	Push string `json:"push"`
	// Runtime is the reference of the image of workerd that scripts are added to. It may be in
	// another registry; if it is in the same one its layers are not copied.
	Runtime string `json:"runtime"`
	// Insecure lets HTTP be spoken without TLS, where TLS is not answered.
	Insecure bool `json:"insecure,omitempty"`

	// DockerConfig holds credentials, as a Secret of type kubernetes.io/dockerconfigjson
	// does. Each is used with its registry alone.
	DockerConfig []byte `json:"-"`
	// CA is a bundle of authorities, as PEM, that are trusted besides those of the system.
	CA []byte `json:"-"`
	// Timeout is how long anything but a push may take. Default 1 min.
	Timeout time.Duration `json:"-"`
	// Backoff is how long a request that failed waits before it is made again, and half as
	// long as it waits the next time. Default 500 ms, so that errors are reported within seconds.
	Backoff time.Duration `json:"-"`
}

// Default fills what was left empty.
func (c *Config) Default() {
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Backoff == 0 {
		c.Backoff = defaultBackoff
	}
}

// Validate reports invalid fields. It names no credentials.
func (c *Config) Validate() error {
	var errs []error
	// "a" stands for an account.
	if _, err := c.repository("a"); err != nil {
		errs = append(errs, err)
	}
	if _, err := c.runtime(); err != nil {
		errs = append(errs, err)
	}
	if _, err := parseKeychain(c.DockerConfig); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, httpclient.ValidateCA(c.CA))
	if c.Timeout <= 0 {
		errs = append(errs, fmt.Errorf("the timeout %s is not above 0", c.Timeout))
	}
	if c.Backoff <= 0 {
		errs = append(errs, fmt.Errorf("the backoff %s is not above 0", c.Backoff))
	}
	return errors.Join(errs...)
}

// repositoryComponent is a part of a repository's name, as the distribution specification has it. The
// library is less strict: it takes "..".
var repositoryComponent = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*$`)

// repository is that of an account.
func (c *Config) repository(account string) (name.Repository, error) {
	if !repositoryComponent.MatchString(account) {
		return name.Repository{}, fmt.Errorf("account %q: is not the name of a repository", account)
	}
	if !hasHost(c.Push) {
		return name.Repository{}, fmt.Errorf("registry folder %q: does not begin with a host", c.Push)
	}
	_, folder, _ := strings.Cut(c.Push, "/")
	for part := range strings.SplitSeq(folder, "/") {
		if !repositoryComponent.MatchString(part) {
			return name.Repository{}, fmt.Errorf("registry folder %q: has the part %q", c.Push, part)
		}
	}
	repository, err := name.NewRepository(c.Push+"/"+account, c.options()...)
	if err != nil {
		return name.Repository{}, fmt.Errorf("registry folder %q and account %q: %w", c.Push, account, err)
	}
	return repository, nil
}

func (c *Config) runtime() (name.Reference, error) {
	if !hasHost(c.Runtime) {
		return nil, fmt.Errorf("runtime image %q: does not begin with a host", c.Runtime)
	}
	reference, err := name.ParseReference(c.Runtime, c.options()...)
	if err != nil {
		return nil, fmt.Errorf("runtime image %q: %w", c.Runtime, err)
	}
	return reference, nil
}

func (c *Config) options() []name.Option {
	if c.Insecure {
		return []name.Option{name.Insecure}
	}
	return nil
}

// hasHost tells whether a name begins with a host: without one the library takes a well
// known registry of its own.
func hasHost(reference string) bool {
	host, _, more := strings.Cut(reference, "/")
	return more && (strings.ContainsAny(host, ".:") || host == "localhost")
}

// errNoTLS is why nothing is sent.
var errNoTLS = errors.New("the registry does not speak TLS, and the configuration does not allow it to do without")

// tlsOnly sends nothing without TLS: the library tries without for names and addresses
// that look local, and would send credentials so.
type tlsOnly struct{ next http.RoundTripper }

func (e tlsOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" {
		return nil, errNoTLS
	}
	return e.next.RoundTrip(r)
}
