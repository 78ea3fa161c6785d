// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudflare

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/spokelet/spokelet/workers/access"
	"github.com/spokelet/spokelet/workers/deployer"
	"github.com/spokelet/spokelet/workers/tail"
	"github.com/spokelet/spokelet/workers/upload"
)

// Reviewer says who a token is of and what he may do. Its errors are those of package access.
type Reviewer interface {
	Authenticate(ctx context.Context, token string) (authenticationv1.UserInfo, error)
	Authorize(ctx context.Context, user authenticationv1.UserInfo, namespace, verb string) error
}

// Accounts says which namespace has an account, and which accounts a user may read.
type Accounts interface {
	Namespace(account string) (string, bool)
	ListReadable(ctx context.Context, user authenticationv1.UserInfo, rights access.Authorizer) ([]string, error)
}

// Config is what an API is made of.
type Config struct {
	Reviewer Reviewer
	Accounts Accounts
	Deployer *deployer.Deployer
	Tails    *tail.Tails
	Log      logr.Logger
	// Limits of one script. Default 200 modules and 16 MiB.
	Limits upload.Limits
	// Requests bounds the requests at a time of those who have a valid token, tails apart: an
	// account has a quarter. Default 200.
	Requests int
	// UploadBytes bounds, in bytes, what bodies have in memory together: those of an account
	// have half, and others wait. Default six of the largest uploads.
	UploadBytes int64
	// Rate and Burst bound the requests of a token: as many per second, and at once. A holder
	// has twice that. Default 20 and 100.
	Rate  float64
	Burst int
}

// Default fills what was left empty.
func (c *Config) Default() {
	if c.Limits.MaxModules == 0 {
		c.Limits.MaxModules = 200
	}
	if c.Limits.MaxBytes == 0 {
		c.Limits.MaxBytes = 16 << 20
	}
	if c.Requests == 0 {
		c.Requests = 200
	}
	if c.UploadBytes == 0 {
		c.UploadBytes = 6 * c.Limits.Peak()
	}
	if c.Rate == 0 {
		c.Rate = 20
	}
	if c.Burst == 0 {
		c.Burst = 100
	}
}

// Validate says what is wrong.
func (c *Config) Validate() error {
	var errs []error
	if c.Reviewer == nil || c.Accounts == nil || c.Deployer == nil || c.Tails == nil {
		errs = append(errs, errors.New("reviewer, accounts, deployer and tails: one is missing"))
	}
	if c.Limits.MaxModules < 1 || c.Limits.MaxBytes < 1 {
		errs = append(errs, fmt.Errorf("the limits of %d modules and %d bytes are not both above 0", c.Limits.MaxModules, c.Limits.MaxBytes))
	}
	if c.Requests < 1 || c.Rate <= 0 || c.Burst < 1 {
		errs = append(errs, fmt.Errorf("the limits of %d requests, %g per second and %d at once are not all above 0", c.Requests, c.Rate, c.Burst))
	}
	if tokenMemory*float64(c.UploadBytes) < float64(c.Limits.Peak()) {
		errs = append(errs, fmt.Errorf("of %d bytes for uploads a token has less than one of %d bytes needs", c.UploadBytes, c.Limits.MaxBytes))
	}
	return errors.Join(errs...)
}

// API is the part of Cloudflare's API that wrangler calls. It may be used by many at a time.
type API struct {
	config Config
	limits *limits
	mux    *http.ServeMux
	// patterns are the routes of mux, as they are documented.
	patterns    []string
	bodyTimeout time.Duration // shorter in tests
}

// New returns an API of what was defaulted and is valid.
func New(config Config) (*API, error) {
	config.Default()
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}
	a := &API{config: config, limits: newLimits(config), mux: http.NewServeMux(), bodyTimeout: bodyTimeout}
	a.routes()
	return a, nil
}

// ServeHTTP implements http.Handler. A connection goes on after a request with a valid token,
// and is closed after any other.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "close")
	a.mux.ServeHTTP(w, r)
}
