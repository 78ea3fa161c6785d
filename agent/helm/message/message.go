// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package message defines the messages between the agent and a process of spokelet-helm.
//
// The agent starts one process for each request. It writes a [Request], as JSON, to the
// standard input, which stays open as long as the agent waits: the process ends with it. The
// process writes [Answer]s, a line of JSON each, to its standard output: any number with a
// progress, and then one with the result.
// File descriptor [Cluster] is its connection to the API server: HTTP/2 without TLS, from the
// first byte on (RFC 9113, section 3.3). All requests on it are made as the requester,
// whatever their headers say. A process that ends without a last answer has failed.
//
// Only the standard library is imported, because both sides import this package.
package message

import "time"

const (
	// Cluster is the file descriptor of the connection to the API server.
	Cluster = 3
	// MaxRequest bounds a request, in bytes.
	MaxRequest = 4 << 20
	// MaxAnswer bounds a line of an answer, in bytes.
	MaxAnswer = 2 << 20
	// Label is on the record of each revision that a request has made; its value is
	// [Request.Mark].
	Label = "spokelet.io/action"
)

// Verb is an operation on a release.
type Verb string

const (
	// Install creates a release, and its namespace if it does not exist.
	Install Verb = "install"
	// Upgrade changes an existing release.
	Upgrade Verb = "upgrade"
	// Uninstall removes one, and its history.
	Uninstall Verb = "uninstall"
	// Recover determines the outcome of an earlier request with the same label, which had no
	// answer. A revision that it left pending is recorded as failed, because no process
	// works on it any more.
	Recover Verb = "settle"
)

// Request is one operation on a release.
type Request struct {
	Verb Verb `json:"verb"`
	// OriginalVerb is the verb of the request to recover.
	OriginalVerb Verb `json:"was,omitempty"`
	// Name and Namespace are those of the release. Without a namespace a release is
	// installed into "default", and any other verb takes the only one of its name.
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	Chart     Chart  `json:"chart"`
	// Values are YAML. They override those of ValuesURL.
	Values    []byte `json:"values,omitempty"`
	ValuesURL string `json:"valuesURL,omitempty"`
	// Allowed are the URLs that may be read; see the chart's value helm.charts.
	Allowed []string `json:"allowed"`
	// ActionLabel is the value of [Label] that identifies the request.
	ActionLabel string `json:"mark"`
	// Wait waits until the release's objects are ready.
	Wait bool `json:"wait,omitempty"`
	// Timeout bounds the time of all changes in the cluster.
	Timeout time.Duration `json:"timeout"`
	// Manifest is set if the answer has the rendered manifest instead of [Masked].
	Manifest bool `json:"manifest,omitempty"`
}

const (
	// Masked replaces a manifest.
	Masked = "***"
	// Omitted replaces a manifest that is too large for an answer.
	Omitted = "(the manifest is too large for an answer)"
)

// Chart is the location of a chart.
type Chart struct {
	// URL of an archive, of a repository if there is a name, or of an artifact
	// (oci://host/path:tag, oci://host/path@sha256:...).
	URL string `json:"url,omitempty"`
	// Name of a chart in a repository.
	Name string `json:"name,omitempty"`
	// Version is a version, or a range of versions if URL allows several.
	Version string `json:"version,omitempty"`
	// InsecureSkipVerify disables the verification of certificates.
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
}

// Answer is a line: one of its fields is set.
type Answer struct {
	// Progress is the present step.
	Progress string `json:"progress,omitempty"`
	// Release is the result: the release as it is, or as it was before it was removed.
	Release *Release `json:"release,omitempty"`
	// Failure is why the request failed.
	Failure *Failure `json:"failure,omitempty"`
}

// Release is a revision of a release, in the fields of the HelmRelease of mcm.ibm.com.
type Release struct {
	Name          string    `json:"name"`
	Namespace     string    `json:"namespace"`
	Revision      int       `json:"revision"`
	Status        string    `json:"status"`
	Description   string    `json:"description,omitempty"`
	FirstDeployed time.Time `json:"firstDeployed"`
	LastDeployed  time.Time `json:"lastDeployed"`
	ChartName     string    `json:"chartName,omitempty"`
	ChartVersion  string    `json:"chartVersion,omitempty"`
	Manifest      string    `json:"manifest,omitempty"`
	// Removed is set if the release does not exist any more.
	Removed bool `json:"absent,omitempty"`
}

// Failure is why a request failed.
type Failure struct {
	Cause Cause `json:"cause"`
	// Reason of the API server's Status, if the API server refused a request.
	Reason string `json:"reason,omitempty"`
	// Message names the subject, and has no values.
	Message string `json:"message"`
}

// Cause is the kind of a failure.
type Cause string

const (
	// Invalid is a request, a chart or values that cannot be used.
	Invalid Cause = "invalid"
	// Refused is a request that the API server refused, or that the release's status does not
	// allow.
	Refused Cause = "refused"
	// Limit is exceeded by something that is too large, or takes too long.
	Limit Cause = "limit"
	// Unavailable is a server that does not answer. The request may be retried.
	Unavailable Cause = "unavailable"
	// Unknown is the outcome of an earlier request that cannot be determined.
	Unknown Cause = "unknown"
)
