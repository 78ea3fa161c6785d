// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package message is what the agent and a process of spokelet-helm say to each other.
//
// The agent starts one process for each thing to be done. It writes a [Request], as JSON,
// to the standard input, which stays open as long as the agent waits: the process ends with
// it. The process writes [Answer]s, a line of JSON each, to its standard output: any number
// with a progress, and then one with what came of it.
// File descriptor [Cluster] is its way to the API server: HTTP/2 without TLS, from the
// first byte on (RFC 9113, section 3.3). What comes through it is done as the requester,
// whatever the request says of who asks. A process that ends without a last answer has
// failed.
//
// Nothing but the standard library is imported: what is said here is both sides' to know.
package message

import "time"

const (
	// Cluster is the file descriptor that leads to the API server.
	Cluster = 3
	// MaxRequest bounds a request, in bytes.
	MaxRequest = 4 << 20
	// MaxAnswer bounds a line of an answer, in bytes.
	MaxAnswer = 2 << 20
	// Label is on the record of each revision that a request has made; its value is
	// [Request.Mark].
	Label = "spokelet.io/action"
)

// Verb is what is to be done with a release.
type Verb string

const (
	// Install makes a release, in a namespace that is made if it is missing.
	Install Verb = "install"
	// Upgrade changes one, which has to be there.
	Upgrade Verb = "upgrade"
	// Uninstall removes one, and its history.
	Uninstall Verb = "uninstall"
	// Recover finds out what became of an earlier request with the same mark, of which no
	// answer came. A revision that it left pending is recorded as failed: no process
	// works on it any more.
	Recover Verb = "settle"
)

// Request asks for one thing.
type Request struct {
	Verb Verb `json:"verb"`
	// OriginalVerb is the verb of what is to be settled.
	OriginalVerb Verb `json:"was,omitempty"`
	// Name and Namespace are those of the release. Without a namespace a release is
	// installed into "default", and any other verb takes the only one of its name.
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	Chart     Chart  `json:"chart"`
	// Values are YAML. They win over those of ValuesURL.
	Values    []byte `json:"values,omitempty"`
	ValuesURL string `json:"valuesURL,omitempty"`
	// Allowed are the URLs that may be read; see the chart's value helm.charts.
	Allowed []string `json:"allowed"`
	// ActionLabel is a label value: it names the request in what it makes.
	ActionLabel string `json:"mark"`
	// Wait has the release's objects ready before it is done.
	Wait bool `json:"wait,omitempty"`
	// Timeout bounds all that is done to the cluster.
	Timeout time.Duration `json:"timeout"`
	// Manifest: the answer has the rendered manifest. Otherwise [Masked] stands there.
	Manifest bool `json:"manifest,omitempty"`
}

const (
	// Masked stands in place of a manifest.
	Masked = "***"
	// Omitted stands in place of one that is too large for an answer.
	Omitted = "(the manifest is too large for an answer)"
)

// Chart says where a chart is.
type Chart struct {
	// URL is that of an archive, of a repository if there is a name, or of an artefact
	// (oci://host/path:tag, oci://host/path@sha256:...).
	URL string `json:"url,omitempty"`
	// Name is that of a chart in a repository.
	Name string `json:"name,omitempty"`
	// Version is one, or a range of them where URL leaves a choice.
	Version string `json:"version,omitempty"`
	// InsecureSkipVerify does not check the certificates of servers.
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
}

// Answer is a line: one of its fields is set.
type Answer struct {
	// Progress is what is being done.
	Progress string `json:"progress,omitempty"`
	// Release is what was done: as it is now, or as it was before it was removed.
	Release *Release `json:"release,omitempty"`
	// Failure is why it was not done.
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
	// Removed: there is none any more.
	Removed bool `json:"absent,omitempty"`
}

// Failure is why something was not done.
type Failure struct {
	Cause Cause `json:"cause"`
	// Reason is that of the API server's Status, if it was the one that refused.
	Reason string `json:"reason,omitempty"`
	// Message names the subject, and holds no values.
	Message string `json:"message"`
}

// Cause is the kind of a failure.
type Cause string

const (
	// Invalid: the request, the chart or its values cannot be used.
	Invalid Cause = "invalid"
	// Refused: the API server refused, or the release is not in a state to be changed.
	Refused Cause = "refused"
	// Limit: something is too large, or takes too long.
	Limit Cause = "limit"
	// Unavailable: a server does not answer. Another try may end otherwise.
	Unavailable Cause = "unavailable"
	// Unknown: nothing tells what became of an earlier request.
	Unknown Cause = "unknown"
)
