# SPDX-License-Identifier: GPL-2.0-only
# Completion for bash: the command itself returns the candidates.
_nodrop() {
	local line
	COMPREPLY=()
	while IFS= read -r line; do
		case $line in
		:files) compopt -o default ;;
		:dirs) compopt -o dirnames ;;
		# A device's name may contain shell syntax.
		*[!A-Za-z0-9,./=_-]*) COMPREPLY+=("$(printf '%q' "$line")") ;;
		*) COMPREPLY+=("$line") ;;
		esac
	done < <("$1" __complete bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null </dev/null)
}
complete -F _nodrop nodrop
