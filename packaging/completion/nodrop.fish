# SPDX-License-Identifier: GPL-2.0-only
# Completion for fish: the command itself returns the candidates.
function __nodrop_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    for line in ($words[1] __complete fish $words[2..] "$current" 2>/dev/null </dev/null)
        switch $line
            case :files
                __fish_complete_path "$current"
            case :dirs
                __fish_complete_directories "$current"
            case '*'
                echo -- $line
        end
    end
end
complete -c nodrop -f -a '(__nodrop_complete)'
