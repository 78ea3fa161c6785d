// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package version

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

// Summary is what a list says of a version, and what it is recognised by.
type Summary struct {
	// ID is a UUID of version 7 (RFC 9562): a later version has a greater one.
	ID string `json:"id"`
	// CreatedOn is when it was uploaded, or made of another one.
	CreatedOn time.Time `json:"createdOn"`
	// Author is the user name that the hub knows him by.
	Author string `json:"author,omitempty"`
	// Message and Tag are the author's own words.
	Message string `json:"message,omitempty"`
	Tag     string `json:"tag,omitempty"`
	// Template is the digest of its script, as [Template] makes it.
	Template string `json:"template"`
	// SecretRef names the Secret of its script, if there is one.
	SecretRef string `json:"secretRef,omitempty"`
	// Folders are the ids of the versions whose modules its script names.
	Folders []string `json:"folders,omitempty"`
}

// Version is a script with its settings, as it can be deployed.
type Version struct {
	Summary

	// Script is the template of a WorkerDeployment.
	Script release.Script
	// SecretNames are the keys of the Secret that the script names, sorted.
	SecretNames []string
}

// Summarize sets what a summary says of a script of an account.
func (s *Summary) Summarize(bucket, account string, of release.Script) {
	s.Template, s.SecretRef, s.Folders = Template(of), of.SecretRef, Folders(bucket, account, of)
}

// File is one module of a version.
type File struct {
	Name, Type string
	Content    []byte
}

// New returns a version without a script, with an ID of its own.
func New(author string) (Version, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Version{}, fmt.Errorf("version id: %w", err)
	}
	return Version{Summary: Summary{ID: id.String(), CreatedOn: createdOn(id), Author: author}}, nil
}

// createdOn is the time that is in the id.
func createdOn(id uuid.UUID) time.Time {
	seconds, nanoseconds := id.Time().UnixTime()
	return time.Unix(seconds, nanoseconds).UTC()
}

// creationTime is the time that is in an id.
func creationTime(id string) (time.Time, error) {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return time.Time{}, fmt.Errorf("version id: %w", err)
	}
	return createdOn(parsed), nil
}

// IsID tells whether a text is an id as New makes them.
func IsID(text string) bool {
	id, err := uuid.Parse(text)
	return err == nil && id.Version() == 7 && id.String() == text
}

// URL returns what a WorkerDeployment names the modules of a version by.
func URL(bucket, account, script, id string) string {
	return "s3://" + bucket + "/" + scriptFolder(account, script) + "/" + id
}

// Folders returns the ids of the versions whose modules a script names.
func Folders(bucket, account string, s release.Script) []string {
	var ids []string
	prefix := URL(bucket, account, s.ScriptName, "")
	for _, url := range s.ScriptURLs {
		if id, below := strings.CutPrefix(url, prefix); below && IsID(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func scriptFolder(account, script string) string { return account + "/" + script }
