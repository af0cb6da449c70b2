# bash completion for detgemm

_detgemm() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
  local command=${COMP_WORDS[1]} words
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="info matmul compare verify bench --help --version"
  else
    case $previous in
      --order) words="fma tc16" ;;
      --op) words="forward grad-a grad-b grad-b-transposed" ;;
      --out-dtype) words="bf16 f16 f32" ;;
      --device|-d) words="cpu cuda:0 musa:0 hip:0 opencl:0" ;;
      --peer) words="openblas cublas none" ;;
      *)
        case $command in
          info) words="--device --json --help" ;;
          matmul) words="--output --op --rhs-transposed --order --device --out-dtype --start --bias
            --cast --npy-bf16 --threads --repeat --against --json --help" ;;
          compare) words="--npy-bf16 --json --help" ;;
          verify) words="--quick --device --order --kernel --shapes --case --seed --json
            --help" ;;
          bench) words="--device --order --op --peer --shape --shapes --threads --quick --svg --from --json
            --help" ;;
        esac ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  case $current in -*) ;; *) COMPREPLY+=($(compgen -f -- "$current")) ;; esac
}
complete -o filenames -F _detgemm detgemm
