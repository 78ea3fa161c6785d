// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/spokelet/spokelet/workers/httpclient"
)

const (
	defaultRegion  = "us-east-1"
	defaultModules = 200
	maxModules     = 200 // a release lists no more
	defaultBytes   = 16 << 20
	defaultAnswer  = 20 * time.Second
	defaultTimeout = time.Minute
	maxConnections = 16
)

// Config says which bucket is read, and how much of it. It is a part of the operator's file; its
// credentials are not.
type Config struct {
	// Endpoint is the URL of the store, as in https://s3.example.com.
	Endpoint string `json:"endpoint"`
	// Region of the bucket. Default us-east-1.
	Region string `json:"region,omitempty"`
	// Bucket with the scripts, those of an account below its id.
	Bucket string `json:"bucket"`
	// MaxModules and MaxBytes bound one script. Default 200 and 16 MiB.
	MaxModules int   `json:"maxModules,omitempty"`
	MaxBytes   int64 `json:"maxScriptBytes,omitempty"`

	// AccessKey and SecretKey sign the requests. Without them they are not signed.
	AccessKey string `json:"-"`
	SecretKey string `json:"-"`
	// CA is a bundle of authorities, as PEM, that are trusted besides those of the system.
	CA []byte `json:"-"`
	// Wrap has each request pass through what it returns, if it is not nil.
	Wrap func(http.RoundTripper) http.RoundTripper `json:"-"`
	// AnswerTimeout is how long the store may take to begin an answer, and to continue one.
	// Default 20 s.
	AnswerTimeout time.Duration `json:"-"`
	// Timeout is how long a listing may take, and the beginning of an object, with all
	// attempts. Default 1 min.
	Timeout time.Duration `json:"-"`
}

// Default fills what was left empty.
func (c *Config) Default() {
	if c.Region == "" {
		c.Region = defaultRegion
	}
	if c.MaxModules == 0 {
		c.MaxModules = defaultModules
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = defaultBytes
	}
	if c.AnswerTimeout == 0 {
		c.AnswerTimeout = defaultAnswer
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
}

// Validate reports invalid fields. It names no credentials.
func (c *Config) Validate() error {
	var errs []error
	if _, err := c.endpoint(); err != nil {
		errs = append(errs, err)
	}
	if err := s3utils.CheckValidBucketName(c.Bucket); err != nil {
		errs = append(errs, fmt.Errorf("bucket %q: %w", c.Bucket, err))
	}
	if (c.AccessKey == "") != (c.SecretKey == "") {
		errs = append(errs, errors.New("access key and secret key: only one of them is there"))
	}
	if strings.ContainsAny(c.AccessKey+c.SecretKey, " \t\r\n") {
		errs = append(errs, errors.New("access key and secret key: there is white space in them"))
	}
	if c.MaxModules < 1 || c.MaxModules > maxModules {
		errs = append(errs, fmt.Errorf("maxModules: %d is not between 1 and %d", c.MaxModules, maxModules))
	}
	if c.MaxBytes < 1 {
		errs = append(errs, fmt.Errorf("maxScriptBytes: %d is less than 1", c.MaxBytes))
	}
	if c.AnswerTimeout <= 0 || c.Timeout <= 0 {
		errs = append(errs, fmt.Errorf("the timeouts %s and %s are not both above 0", c.AnswerTimeout, c.Timeout))
	}
	errs = append(errs, httpclient.ValidateCA(c.CA))
	return errors.Join(errs...)
}

// endpoint is the URL, and nothing but a scheme and a host.
func (c *Config) endpoint() (*url.URL, error) {
	parsed, err := url.Parse(c.Endpoint)
	if err != nil {
		return nil, errors.New("endpoint: is no URL") // its text may hold a password
	}
	if parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" {
		return nil, errors.New("endpoint: is not http:// or https:// and a host")
	}
	if parsed.User != nil || strings.Trim(parsed.Path, "/") != "" || parsed.RawQuery != "" || parsed.Fragment != "" {
		return nil, errors.New("endpoint: has more than a scheme and a host")
	}
	return parsed, nil
}
