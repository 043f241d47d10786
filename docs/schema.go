// Package docs holds what of the documentation programs read.
package docs

import _ "embed"

// AuditSchema is the JSON Schema (2020-12) of a line of the audit log.
//
//go:embed audit.schema.json
var AuditSchema string
